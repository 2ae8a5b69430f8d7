package main

import (
	"context"
	"io"
	"net/url"
	"os"
	"os/user"
	"time"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/output"
	"tributary/server/admin"
)

func newGuard() *cobra.Command {
	return group(&cobra.Command{
		Use:   "guard",
		Short: "Show and release mass losses that are held back",
		Long: `When a source suddenly loses many of its objects, tributary holds the loss and goes on serving the objects,
until they come back, a person releases the hold, or the time set by holdFor has passed.`,
	}, newGuardList(), newGuardRelease())
}

func newGuardList() *cobra.Command {
	var flags adminFlags
	format := outputs("text", "json")
	command := &cobra.Command{
		Use:     "list",
		Short:   "Show held losses, and why they are held",
		Example: `  tributary guard list`,
		Args:    cobra.NoArgs,
		RunE: runInterruptible(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			var guarded []admin.HeldSource
			return flags.show(ctx, cmd, format, "/debug/guard", nil, &guarded, func(w io.Writer) error {
				return output.Guard(w, guarded, time.Now())
			})
		}),
	}
	flags.add(command)
	format.add(command)
	return command
}

func newGuardRelease() *cobra.Command {
	var flags adminFlags
	var hold string
	command := &cobra.Command{
		Use:   "release SOURCE",
		Short: "Release the held loss of a source",
		Long: `Release sends the loss to clients at once. Look at it first with tributary guard list. With --hold it
releases only the hold with that ID, which you looked at. It exits with 1 without a hold. The server logs the name of
the user.`,
		Example: `  tributary guard release rules
  tributary guard release rules --hold mi9x2k1c`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: flags.completeHolds,
		RunE: runInterruptible(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			return flags.post(ctx, cmd, "/-/guard/release", url.Values{"source": args, "hold": {hold}})
		}),
	}
	command.Flags().StringVar(&hold, "hold", "", "which hold, as guard list shows it")
	flags.add(command)
	return command
}

// userAtHost returns the names of the user and the machine, or placeholders.
func userAtHost() string {
	name, host := "somebody", "somewhere"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}
