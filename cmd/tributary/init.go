package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/check"
	"tributary/config"
	"tributary/internal/words"
)

func newInit() *cobra.Command { return initOf(check.Registries()) }

// initOf is the command that looks for registries.
func initOf(registries []check.Registry) *cobra.Command {
	var host string
	cmd := &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a first configuration of what is found",
		Long: `Init writes a configuration with comments, ./tributary.yaml unless another FILE is named: of the objects in files
beside it, and of the registries that answer on this machine on their usual ports: Consul, ZooKeeper, Nacos and Eureka. A file
that is there already is never changed.`,
		Example: `  tributary init
  tributary init /etc/tributary/tributary.yaml --host registry.example`,
		Args: cobra.MaximumNArgs(1),
		RunE: asks(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			path := "tributary.yaml"
			if len(args) > 0 {
				path = args[0]
			}
			if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%s is there already, and is left as it is", path)
			}
			if _, _, err := net.SplitHostPort(host); err == nil {
				return usage("--host %s: want a host without port", host)
			}
			if _, err := net.DefaultResolver.LookupHost(ctx, host); err != nil {
				return fmt.Errorf("--host %s: %w", host, err)
			}
			files, err := check.FindFiles(filepath.Dir(path))
			if err != nil {
				return err
			}
			found := check.FindRegistries(ctx, host, registries)
			if len(files)+len(found) == 0 {
				if err := os.MkdirAll(filepath.Join(filepath.Dir(path), "rules"), 0o755); err != nil { //nolint:gosec // the server may be another user
					return err
				}
			}
			text := []byte(check.InitialConfig(files, found))
			if _, err := config.Parse(path, text); err != nil {
				return fmt.Errorf("what was found makes no configuration: %w", err)
			}
			// Somebody may have made it meanwhile: it is not touched then, either.
			//nolint:gosec // it has no secrets, and the server may be another user
			file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
			if err != nil {
				return err
			}
			_, err = file.Write(text)
			if err := errors.Join(err, file.Close()); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is written, with %s of files and %s\nnext: tributary doctor -c %s\n", path,
				words.Count(len(files), "place", "places"), words.Count(len(found), "registry", "registries"), path)
			return err
		}),
	}
	cmd.Flags().StringVar(&host, "host", "127.0.0.1", "host on which registries are looked for")
	return cmd
}
