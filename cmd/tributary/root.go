package main

import (
	"context"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "tributary",
		Short: "Merge mesh configuration from many places and serve it over xDS",
		Long: `tributary reads mesh configuration from many places, merges it into one consistent view, and serves that view to
istiod over xDS (MCP, Istio's Mesh Configuration Protocol).

Exit codes: 0 done, 1 runtime error, 2 wrong usage, 3 findings, 78 bad configuration.`,
		SilenceErrors: true, // exitCode prints them
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(newServe(), newValidate(), newGet(), newWatch(), newVersion())
	return root
}

// untilSignal returns a context that ends with the first SIGINT or SIGTERM. The second one ends the process at once.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // from then on signals do again what they do by default
	return ctx, stop
}
