package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/output"
	"tributary/server/admin"
)

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
