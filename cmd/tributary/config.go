package main

import (
	"path/filepath"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"tributary/cmd/internal/check"
	"tributary/docs"
	"tributary/internal/relay"
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
