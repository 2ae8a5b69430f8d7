package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tributary/config"
)

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "tributary",
		Short: "Merge mesh configuration from many places and serve it over xDS",
		Long: `tributary reads mesh configuration from many places, merges it into one consistent view, and serves that
view to istiod over xDS (MCP, Istio's Mesh Configuration Protocol).

Exit codes: 0 done, 1 runtime error, 2 wrong usage, 3 findings or differences, 78 bad configuration.`,
		SilenceErrors: true, // exitCode prints them
		SilenceUsage:  true,
		Version:       thisBuild().Version,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			findAdmin(cmd) // before a check of the token
			return checkDurations(cmd)
		},
	}
	group(root, newServe(), newInit(), newDoctor(), newBundle(), newValidate(), newGet(), newApply(), newEdit(),
		newDelete(), newWatch(), newDiff(), newHistory(), newVerify(), newExplain(), newStatus(), newReload(), newGuard(),
		newClient(), newLogLevel(),
		newBootstrap(), newAccess(), newToken(), newVersion(), newConfig(), newSchema(), newDocs(),
		removedCommand("upgrade", "restart the service (systemctl restart tributary, or SIGTERM and a new start): "+
			"clients keep their configuration, and with tributary.socket new ones wait meanwhile"),
		removedCommand("load", "run it from the source: go run -C bench ./load -server HOST:PORT -clients N"))
	root.SetFlagErrorFunc(explainFlag)
	root.SetHelpCommand(newHelp(root))
	describeArguments(root)
	return root
}

// removedCommand makes a command of earlier versions fail and name the replacement.
func removedCommand(name, instead string) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: "A command of earlier versions", Hidden: true, DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return &failure{exitFailed, fmt.Errorf("%s was removed: %s", cmd.CommandPath(), instead)}
		},
	}
}

// group makes a command of cmd that only has subcommands and prints its help.
func group(cmd *cobra.Command, subcommands ...*cobra.Command) *cobra.Command {
	cmd.Args, cmd.RunE = unknownCommand, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(subcommands...)
	return cmd
}

func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about a command",
		Args:  cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			command, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return unknownCommand(command, append(rest, args...))
			}
			command.InitDefaultHelpFlag()
			return command.Help()
		},
	}
}

// checkDurations refuses negative durations.
func checkDurations(cmd *cobra.Command) (err error) {
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if flag.Value.Type() != "duration" || err != nil {
			return
		}
		if duration, invalid := time.ParseDuration(flag.Value.String()); invalid == nil && duration < 0 {
			err = usage("--%s %s: must not be negative", flag.Name, duration)
		}
	})
	return err
}

// untilSignal returns a context that ends with the first SIGINT or SIGTERM. By then signals have their default effect
// again, so that a second one ends the process at once. The caller calls stop when it is done.
func untilSignal(ctx context.Context) (signalled context.Context, stop func()) {
	signalled, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	joined := make(chan struct{})
	go func() {
		defer close(joined)
		select {
		case <-signals:
		case <-signalled.Done():
		}
		signal.Stop(signals) // before cancel: signal.NotifyContext does it after, and swallows a second one in between
		cancel()
	}()
	return signalled, func() {
		cancel()
		<-joined
	}
}

// The exit codes. They are part of the command line's contract.
const (
	exitOK       = 0
	exitFailed   = 1
	exitUsage    = 2
	exitFindings = 3
	exitConfig   = 78 // EX_CONFIG of sysexits.h
)

type failure struct {
	code int
	err  error // nil if the command printed the problem
}

func (f *failure) Error() string {
	if f.err == nil {
		return fmt.Sprintf("exit code %d", f.code)
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

// usage returns a failure by a wrong command line.
func usage(format string, args ...any) error {
	return &failure{exitUsage, fmt.Errorf(format, args...)}
}

// runCommand returns the RunE of a command. Errors that reach the top without this are cobra's own: wrong usage.
func runCommand(run func(command *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(command *cobra.Command, args []string) error {
		err := findServer(command)
		if err == nil {
			err = explainConnection(command, run(command, args), "")
		}
		if _, exits := errors.AsType[*failure](err); exits || err == nil {
			return err
		}
		if errors.Is(err, context.Canceled) {
			err = errors.New("interrupted")
		}
		return &failure{exitFailed, err}
	}
}

// warn prints errors that do not end the command.
func warn(cmd *cobra.Command, problems ...error) {
	for _, err := range problems {
		cmd.PrintErrf("warning: %v\n", err)
	}
}

// runInterruptible is runCommand with a context that a signal ends.
func runInterruptible(
	run func(ctx context.Context, command *cobra.Command, args []string) error,
) func(*cobra.Command, []string) error {
	return runCommand(func(command *cobra.Command, args []string) error {
		ctx, stop := untilSignal(command.Context())
		defer stop()
		return run(ctx, command, args)
	})
}

// exitCode prints the error of a command, and returns its exit code.
func exitCode(err error, command *cobra.Command, stderr io.Writer) int {
	if err == nil {
		return exitOK
	}
	failed, ok := errors.AsType[*failure](err)
	if !ok {
		failed = &failure{exitUsage, explainFlagGroups(err)}
	}
	_, listsPlaces := failed.err.(*config.Error) //nolint:errorlint // a wrapped one is a message
	text := ""
	switch {
	case failed.err == nil:
	case listsPlaces:
		text = failed.err.Error() + "\n" // one place a line, for editors to jump to
	case failed.code == exitUsage:
		text = fmt.Sprintf("error: %v\nSee `%s --help`.\n", failed.err, command.CommandPath())
	default:
		text = fmt.Sprintf("error: %v\n", failed.err)
	}
	_, _ = io.WriteString(stderr, text) // a failure has no other channel
	return failed.code
}
