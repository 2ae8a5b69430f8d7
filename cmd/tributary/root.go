package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "tributary",
		Short: "Merge mesh configuration from many places and serve it over xDS",
		Long: `tributary reads mesh configuration from many places, merges it into one consistent view, and serves that view to
istiod over xDS (MCP, Istio's Mesh Configuration Protocol).

Exit codes: 0 done, 1 runtime error, 2 wrong usage, 3 findings or differences, 75 upgrade in progress (retry), 78 bad configuration.`,
		SilenceErrors: true, // exitCode prints them
		SilenceUsage:  true,
		Version:       thisBuild().Version,
		Args:          noCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			findAdmin(cmd) // before what is wrong with a token is looked for
			return checkDurations(cmd)
		},
	}
	root.AddCommand(newServe(), newInit(), newDoctor(), newBundle(), newValidate(), newGet(), newApply(), newEdit(), newDelete(), newWatch(), newDiff(), newHistory(), newVerify(), newExplain(), newStatus(), newReload(), newUpgrade(), newGuard(), newLoad(), newBootstrap(), newAccess(), newToken(), newVersion(), newConfig(), newSchema(), newDocs())
	root.SetFlagErrorFunc(explainFlag)
	root.SetHelpCommand(newHelp(root))
	sayArguments(root)
	return root
}

func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about a command",
		Args:  cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return noCommand(cmd, append(rest, args...))
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}

// checkDurations refuses what no clock can wait for.
func checkDurations(cmd *cobra.Command) (err error) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if d, parsed := time.ParseDuration(f.Value.String()); f.Value.Type() == "duration" && parsed == nil && d < 0 && err == nil {
			err = usage("--%s %s: want no less than nothing", f.Name, d)
		}
	})
	return err
}

// untilSignal returns a context that ends with the first SIGINT or SIGTERM. By then signals do again what they do by
// default, so that a second one ends the process at once. The caller calls stop when it is done.
func untilSignal(ctx context.Context) (until context.Context, stop func()) {
	until, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	joined := make(chan struct{})
	go func() {
		defer close(joined)
		select {
		case <-signals:
		case <-until.Done():
		}
		signal.Stop(signals) // before cancel: signal.NotifyContext does it after, and swallows a second one in between
		cancel()
	}()
	return until, func() {
		cancel()
		<-joined
	}
}
