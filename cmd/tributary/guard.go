package main

import (
	"io"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/report"
	"tributary/server/admin"
)

func newGuard() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "guard",
		Short: "Show and release mass losses that are held back",
		Long: `When a source suddenly no longer has much of what it had, tributary holds that back and goes on serving what there was,
until it comes back, a person releases it, or the time set by holdFor has passed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newGuardList(), newGuardRelease())
	return cmd
}

func newGuardList() *cobra.Command {
	var flags adminFlags
	output := outputs("text", "json")
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "Show what is held, and why",
		Example: `  tributary guard list`,
		Args:    cobra.NoArgs,
		RunE: does(func(cmd *cobra.Command, _ []string) error {
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			var all []admin.Guarded
			page, err := flags.client().Get(ctx, "/debug/guard", nil, &all)
			if err != nil {
				return err
			}
			if output.value == "json" {
				_, err = cmd.OutOrStdout().Write(page)
				return err
			}
			return report.Guard(cmd.OutOrStdout(), all, time.Now())
		}),
	}
	flags.add(cmd)
	output.add(cmd)
	return cmd
}

func newGuardRelease() *cobra.Command {
	var flags adminFlags
	cmd := &cobra.Command{
		Use:   "release SOURCE",
		Short: "Let a source lose what is held of it",
		Long: `Release has clients told of the loss at once. Look at it first with tributary guard list. It exits with 1 if nothing is
held.`,
		Example: `  tributary guard release rules`,
		Args:    cobra.ExactArgs(1),
		RunE: does(func(cmd *cobra.Command, args []string) error {
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			done, err := flags.client().Post(ctx, "/-/guard/release", url.Values{"source": args})
			if err != nil {
				return err
			}
			_, err = io.WriteString(cmd.OutOrStdout(), done)
			return err
		}),
	}
	flags.add(cmd)
	return cmd
}
