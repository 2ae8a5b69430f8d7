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
	"go.yaml.in/yaml/v3"

	"tributary/cmd/internal/check"
	"tributary/config"
	"tributary/docs"
	"tributary/internal/relay"
	"tributary/internal/words"
)

func newConfig() *cobra.Command {
	var file string
	format := outputs("yaml", "json")
	command := &cobra.Command{
		Use:   "config [-c FILE]",
		Short: "Print the configuration with its defaults, and where each value is from",
		Long: `Config prints the configuration that serve would use: the values of the file, or of all files of a
directory, and the defaults of the keys that no file has. A comment says where each value is from: FILE:LINE, or
default. Secrets are hidden. Flags of serve are not included.

With -o json it prints a list of {key, value, from}.`,
		Example: `  tributary config -c /etc/tributary/tributary.yaml
  tributary config | grep -v '# default$'
  tributary config -o json > effective.json`,
		Args: cobra.NoArgs,
		RunE: runCommand(func(command *cobra.Command, _ []string) (err error) {
			cfg, err := loadConfig(&file)
			if err != nil {
				return err
			}
			if cfg.StateDir == "" {
				if cfg.StateDir, _, err = relay.StatePath(cfg, relay.Origin{File: file}); err != nil {
					return err
				}
			}
			root, settings, err := cfg.Effective(docs.Schema)
			if err != nil {
				return err
			}
			var secrets check.Secrets
			secrets.Clean(root, "", filepath.Dir(file)) // its paths are absolute, but for those of a relative file
			if format.value == "yaml" {
				for _, s := range settings {
					s.Value.LineComment = s.From
				}
				encoder := yaml.NewEncoder(command.OutOrStdout())
				encoder.SetIndent(2)
				return encoder.Encode(root)
			}
			type setting struct {
				Key   string `json:"key"`
				Value any    `json:"value"`
				From  string `json:"from"`
			}
			list := make([]setting, len(settings))
			for i, s := range settings {
				list[i] = setting{Key: s.Key, From: s.From}
				if err := s.Value.Decode(&list[i].Value); err != nil {
					return err
				}
			}
			return printJSON(command.OutOrStdout(), list)
		}),
	}
	addConfig(command, &file, "")
	format.add(command)
	return command
}

// loadConfig loads the configuration of file, or else the first existing default one.
func loadConfig(file *string) (cfg *config.Config, err error) {
	if *file == "" {
		*file, err = config.Find(config.DefaultPaths())
	}
	if err == nil {
		cfg, err = config.Load(*file)
	}
	if err != nil {
		return nil, &failure{exitConfig, err}
	}
	return cfg, nil
}

func newSchema() *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON schema of the configuration, for editors",
		Example: `  tributary schema > tributary.schema.json`,
		Args:    cobra.NoArgs,
		RunE: runCommand(func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(docs.Schema)
			return err
		}),
	}
}

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
