package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/check"
	"tributary/config"
	"tributary/internal/words"
)

func newInit() *cobra.Command { return initOf(check.Registries()) }

// initOf returns the command that searches for registries.
func initOf(registries []check.Registry) *cobra.Command {
	var host string
	names := words.Each(registries, func(registry check.Registry) string { return registry.Name })
	command := &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a first configuration of the registries that are found",
		Long: `Init writes a configuration with comments, ./tributary.yaml unless another FILE is named: of the objects in
files beside it, and of the registries that answer on this machine on their usual ports
(` + strings.Join(names, ", ") + `). A file that is there already is never changed.`,
		Example: `  tributary init
  tributary init /etc/tributary/tributary.yaml --host registry.example`,
		Args: cobra.MaximumNArgs(1),
		RunE: runInterruptible(func(ctx context.Context, command *cobra.Command, args []string) error {
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
			reachable := check.FindRegistries(ctx, host, registries)
			if len(files)+len(reachable) == 0 {
				rules := filepath.Join(filepath.Dir(path), "rules")
				if err := os.MkdirAll(rules, 0o755); err != nil { //nolint:gosec // the server may be another user
					return err
				}
			}
			text := []byte(check.InitialConfig(files, reachable))
			if _, err := config.Parse(path, text); err != nil {
				return fmt.Errorf("the registries that were found make no valid configuration: %w", err)
			}
			// Another process may have made it meanwhile: it is not changed then, either. It has no secrets, and the server
			// may be another user.
			if err := writeNew(path, text, 0o644); err != nil {
				return err
			}
			_, err = fmt.Fprintf(command.OutOrStdout(),
				"%s is written, with %s of files and %s\nnext: tributary doctor -c %s\n", path,
				words.Count(len(files), "place", "places"), words.Count(len(reachable), "registry", "registries"), path)
			return err
		}),
	}
	command.Flags().StringVar(&host, "host", "127.0.0.1", "host on which registries are looked for")
	return command
}

// writeNew writes a file that does not exist yet.
func writeNew(path string, text []byte, mode fs.FileMode) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Close())
}
