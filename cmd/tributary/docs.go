package main

import (
	"os"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/output"
)

//go:generate go run . docs reference ../../docs/commands.md

// newDocs writes documentation for packages, and for the reference of the commands.
func newDocs() *cobra.Command {
	command := &cobra.Command{
		Use: "docs", Short: "Write the documentation of the commands", Hidden: true,
		Args: cobra.NoArgs,
	}
	command.AddCommand(
		&cobra.Command{
			Use: "man DIR", Short: "Write manual pages into a directory", Args: cobra.ExactArgs(1),
			RunE: runCommand(func(command *cobra.Command, args []string) error {
				return output.ManPages(documented(command), args[0])
			}),
		},
		&cobra.Command{
			Use: "reference FILE", Short: "Write the reference of all commands", Args: cobra.ExactArgs(1),
			RunE: runCommand(func(command *cobra.Command, args []string) error {
				return os.WriteFile(args[0], output.Reference(documented(command)), 0o644) //nolint:gosec // it is to be read by all
			}),
		},
	)
	return command
}

// documented returns the root of cmd for documentation: without times and paths of the build.
func documented(cmd *cobra.Command) *cobra.Command {
	root := cmd.Root()
	root.DisableAutoGenTag = true
	root.InitDefaultCompletionCmd()
	return root
}
