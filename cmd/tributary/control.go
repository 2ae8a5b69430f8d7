package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/client"
	"tributary/cmd/internal/output"
	"tributary/server/admin"
)

func newReload() *cobra.Command {
	var flags adminFlags
	command := &cobra.Command{
		Use:   "reload",
		Short: "Have a server read its configuration file again",
		Long: `Reload makes a server put its configuration file in force, as SIGHUP does, and prints the changes. An
invalid file has no effect: reload prints its errors and exits with 78. The server logs the name of the user.`,
		Example: `  tributary reload
  tributary reload --admin mesh-1.example:16014`,
		Args: cobra.NoArgs,
		RunE: runInterruptible(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			err := flags.post(ctx, cmd, "/-/reload", url.Values{})
			if answer, ok := errors.AsType[*client.StatusError](err); ok && answer.Code == http.StatusInternalServerError {
				return &failure{exitConfig, err}
			}
			return err
		}),
	}
	flags.add(command)
	return command
}

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
			var guarded []admin.Guarded
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

// whoAmI returns the names of the user and the machine, or placeholders.
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

func newStatus() *cobra.Command {
	var flags adminFlags
	var check bool
	format := outputs("text", "json")
	command := &cobra.Command{
		Use:   "status",
		Short: "Show sources, objects, conflicts, holds and clients of a server",
		Long: `Status shows the state of a server on one screen. With --check it prints a line for each problem that needs
an action, and exits with 3 if there is one: a server that is not ready, a refused configuration, a source that is not
healthy, a held loss, invalid objects, resources that clients reject, expired certificates.

With several servers, --admin A,B,C, it shows a line of each. CONTENT is a hash of the served objects. --check then
also exits with 3 if one does not answer, or if they serve different objects.`,
		Example: `  tributary status
  tributary status --check || page-operator
  tributary status --admin mesh-1.example:16014 -o json
  tributary status --admin mesh-1.example:16014,mesh-2.example:16014 --check`,
		Args: cobra.NoArgs,
		RunE: runInterruptible(func(ctx context.Context, command *cobra.Command, _ []string) error {
			if strings.Contains(flags.server.address, ",") {
				return flags.fleet(ctx, command.OutOrStdout(), check, format.value == "json")
			}
			var status admin.Status
			page, err := flags.client().Get(ctx, "/debug/status", nil, &status)
			if err != nil {
				return err
			}
			writer := command.OutOrStdout()
			switch {
			case check:
				if format.value == "json" {
					_, err = writer.Write(page)
					writer = io.Discard
				}
				well, checkErr := output.Check(writer, &status)
				if err = errors.Join(err, checkErr); err == nil && !well {
					return &failure{code: exitFindings}
				}
				return err
			case format.value == "json":
				_, err = writer.Write(page)
				return err
			}
			return output.Status(writer, flags.client().Name(), &status, time.Now(), output.ScreenOf(writer))
		}),
	}
	flags.add(command)
	command.Flags().BoolVar(&check, "check", false, "print the problems, and exit with 3 if there are any")
	format.add(command)
	return command
}

func (f *adminFlags) fleet(ctx context.Context, writer io.Writer, check, asJSON bool) error {
	instances := make([]output.Instance, 0)
	for name := range strings.SplitSeq(f.server.address, ",") {
		instances = append(instances, output.Instance{Name: strings.TrimSpace(name)})
	}
	var group sync.WaitGroup
	for i := range instances {
		group.Go(func() {
			flags := *f
			flags.server = adminServer{address: instances[i].Name}
			var status admin.Status
			if _, err := flags.client().Get(ctx, "/debug/status", nil, &status); err != nil {
				instances[i].Error = err.Error()
				return
			}
			instances[i].Status = &status
		})
	}
	group.Wait()
	var err error
	stdout := writer
	if asJSON {
		err, writer = printJSON(stdout, instances), io.Discard
	}
	if check {
		well, checkErr := output.CheckFleet(writer, instances)
		if err = errors.Join(err, checkErr); err == nil && !well {
			return &failure{code: exitFindings}
		}
		return err
	}
	err = errors.Join(err, output.Fleet(writer, instances, time.Now(), output.ScreenOf(stdout)))
	silent := slices.IndexFunc(instances, func(i output.Instance) bool { return i.Status == nil })
	if err == nil && silent >= 0 {
		return errors.New(instances[silent].Error)
	}
	return err
}

func newClient() *cobra.Command {
	kick := posting("/-/clients/kick", "node", &cobra.Command{
		Use:   "kick NODE",
		Short: "End the streams of a client, so that it reconnects",
		Long: `Kick ends all streams of the client with a node ID. The client reconnects and gets its configuration again:
an Envoy retries a listener that it rejected for a port in use. Traffic goes on meanwhile. The server logs the
request. It exits with 1 if no such client is connected.`,
		Example: `  tributary client kick sidecar~10.0.0.1~web.shop~shop.svc.cluster.local`,
	})
	return group(&cobra.Command{
		Use: "client", Short: "Act on a connected client", Long: "Clients are listed by tributary status and /debug/clients.",
	}, kick)
}

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

// posting makes a command call the action at a path with its argument as the parameter.
func posting(path, parameter string, command *cobra.Command) *cobra.Command {
	var flags adminFlags
	command.Args = cobra.ExactArgs(1)
	command.RunE = runInterruptible(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		return flags.post(ctx, cmd, path, url.Values{parameter: args})
	})
	flags.add(command)
	return command
}
