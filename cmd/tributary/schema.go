package main

import (
	"github.com/spf13/cobra"

	"tributary/docs"
)

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
