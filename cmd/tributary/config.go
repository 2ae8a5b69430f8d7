package main

import (
	"path/filepath"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"tributary/cmd/internal/check"
	"tributary/config"
	"tributary/docs"
	"tributary/internal/relay"
)

func newConfig() *cobra.Command {
	var file string
	format := outputs("yaml", "json")
	cmd := &cobra.Command{
		Use:   "config [-c FILE]",
		Short: "Print the configuration with its defaults, and where each value is from",
		Long: `Config prints the configuration that serve would use: the values of the file, or of all files of a directory, and the
defaults of the keys that no file has. A comment says where each value is from: FILE:LINE, or default. Secrets are hidden. What
flags of serve change is not in it.

With -o json it prints a list of {key, value, from}.`,
		Example: `  tributary config -c /etc/tributary/tributary.yaml
  tributary config | grep -v '# default$'
  tributary config -o json > effective.json`,
		Args: cobra.NoArgs,
		RunE: does(func(cmd *cobra.Command, _ []string) (err error) {
			cfg, err := loadConfig(&file)
			if err != nil {
				return err
			}
			if cfg.StateDir == "" {
				if cfg.StateDir, _, err = relay.StatePath(cfg, relay.Origin{File: file}); err != nil {
					return err
				}
			}
			root, all, err := cfg.Effective(docs.Schema)
			if err != nil {
				return err
			}
			var secrets check.Secrets
			secrets.Clean(root, filepath.Dir(file)) // its paths are absolute, but for those of a relative file
			if format.value == "yaml" {
				for _, s := range all {
					s.Value.LineComment = s.From
				}
				e := yaml.NewEncoder(cmd.OutOrStdout())
				e.SetIndent(2)
				return e.Encode(root)
			}
			type setting struct {
				Key   string `json:"key"`
				Value any    `json:"value"`
				From  string `json:"from"`
			}
			list := make([]setting, len(all))
			for i, s := range all {
				list[i] = setting{Key: s.Key, From: s.From}
				if err := s.Value.Decode(&list[i].Value); err != nil {
					return err
				}
			}
			return printJSON(cmd.OutOrStdout(), list)
		}),
	}
	addConfig(cmd, &file, "")
	format.add(cmd)
	return cmd
}

// loadConfig loads the configuration of file, or else the first that there is of the default ones.
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
		RunE: does(func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(docs.Schema)
			return err
		}),
	}
}
