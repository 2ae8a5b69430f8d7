package main

import (
	"strings"

	"github.com/spf13/cobra"

	"tributary/config"
)

// addConfig adds the flag -c; description continues the one of the file.
func addConfig(cmd *cobra.Command, file *string, description string) {
	cmd.Flags().StringVarP(file, "config", "c", "",
		"configuration file, or directory of *.yaml files"+description+" (default: the first that exists of "+
			strings.Join(config.DefaultPaths(), ", ")+")")
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
