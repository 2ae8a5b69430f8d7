package main

import (
	"time"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/report"
	"tributary/server/admin"
)

func newStatus() *cobra.Command {
	var flags adminFlags
	output := outputs("text", "json")
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show sources, objects, conflicts, holds and clients of a server",
		Example: `  tributary status
  tributary status --admin mesh-1.example:16014 -o json`,
		Args: cobra.NoArgs,
		RunE: does(func(cmd *cobra.Command, _ []string) error {
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			var st admin.Status
			page, err := flags.client().Get(ctx, "/debug/status", nil, &st)
			if err != nil {
				return err
			}
			if output.value == "json" {
				_, err = cmd.OutOrStdout().Write(page)
				return err
			}
			return report.Status(cmd.OutOrStdout(), flags.address, &st, time.Now())
		}),
	}
	flags.add(cmd)
	output.add(cmd)
	return cmd
}
