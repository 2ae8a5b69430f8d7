package main

import (
	"log/slog"

	"github.com/spf13/cobra"
)

func newLogLevel() *cobra.Command {
	command := posting("/-/log-level", "level", &cobra.Command{
		Use:     "log-level {debug | info | warn | error}",
		Short:   "Change the lowest level that a server logs, until it ends",
		Example: "  tributary log-level debug\n  tributary log-level info",
	})
	post := command.RunE
	command.RunE = func(command *cobra.Command, args []string) error {
		if new(slog.Level).UnmarshalText([]byte(args[0])) != nil {
			return usage("log level %s: want debug, info, warn or error", args[0])
		}
		return post(command, args)
	}
	return command
}
