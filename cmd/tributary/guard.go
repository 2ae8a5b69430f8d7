package main

import (
	"io"
	"net/url"
	"os"
	"os/user"
	"time"

	"tributary/cmd/internal/output"

	"github.com/spf13/cobra"

	"tributary/server/admin"
)

func newGuard() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "guard",
		Short: "Show and release mass losses that are held back",
		Long: `When a source suddenly no longer has much of what it had, tributary holds that back and goes on serving what there was,
until it comes back, a person releases it, or the time set by holdFor has passed.`,
		Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newGuardList(), newGuardRelease())
	return cmd
}

func newGuardList() *cobra.Command {
	var flags adminFlags
	format := outputs("text", "json")
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
			if format.value == "json" {
				_, err = cmd.OutOrStdout().Write(page)
				return err
			}
			return output.Guard(cmd.OutOrStdout(), all, time.Now())
		}),
	}
	flags.add(cmd)
	format.add(cmd)
	return cmd
}

func newGuardRelease() *cobra.Command {
	var flags adminFlags
	var hold string
	cmd := &cobra.Command{
		Use:   "release SOURCE",
		Short: "Let a source lose what is held of it",
		Long: `Release has clients told of the loss at once. Look at it first with tributary guard list. With --hold it
is released only if it is the one that you looked at. It exits with 1 if nothing is held. The server logs who released it.`,
		Example: `  tributary guard release rules
  tributary guard release rules --hold mi9x2k1c`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: flags.completeHolds,
		RunE: does(func(cmd *cobra.Command, args []string) error {
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			done, err := flags.client().Post(ctx, "/-/guard/release", url.Values{"source": args, "hold": {hold}, "by": {whoAmI()}})
			if err != nil {
				return err
			}
			flags.nameServer(cmd)
			_, err = io.WriteString(cmd.OutOrStdout(), done)
			return err
		}),
	}
	cmd.Flags().StringVar(&hold, "hold", "", "which hold, as guard list shows it")
	flags.add(cmd)
	return cmd
}

// whoAmI returns the user and the machine, as far as they are known.
func whoAmI() string {
	name, host := "somebody", "somewhere"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}
