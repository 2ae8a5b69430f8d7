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
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show sources, objects, conflicts, holds and clients of a server",
		Long: `Status shows all of it on one screen. With --check it says in a line each what somebody should do something about, and exits with
3 if there is anything: a server that is not ready, a configuration that is refused, a source that is not healthy, a loss that is held,
objects that are not valid, what clients reject, certificates that have expired.

With several servers, --admin A,B,C, it shows a line of each. CONTENT is a hash of the objects that are served. --check then also exits with
3 if one does not answer, or if they do not all serve the same.`,
		Example: `  tributary status
  tributary status --check || page-somebody
  tributary status --admin mesh-1.example:16014 -o json
  tributary status --admin mesh-1.example:16014,mesh-2.example:16014 --check`,
		Args: cobra.NoArgs,
		RunE: asks(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			if strings.Contains(flags.server.address, ",") {
				return flags.fleet(ctx, cmd.OutOrStdout(), check, format.value == "json")
			}
			var st admin.Status
			page, err := flags.client().Get(ctx, "/debug/status", nil, &st)
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			switch {
			case check:
				if format.value == "json" {
					_, err = w.Write(page)
					w = io.Discard
				}
				well, checkErr := output.Check(w, &st)
				if err = errors.Join(err, checkErr); err == nil && !well {
					return &failure{code: exitFindings}
				}
				return err
			case format.value == "json":
				_, err = w.Write(page)
				return err
			}
			return output.Status(w, flags.client().Name(), &st, time.Now(), output.ScreenOf(w))
		}),
	}
	flags.add(cmd)
	cmd.Flags().BoolVar(&check, "check", false, "say what is wrong, and exit with 3 if anything is")
	format.add(cmd)
	return cmd
}

func (f *adminFlags) fleet(ctx context.Context, w io.Writer, check, asJSON bool) error {
	all := make([]output.Instance, 0)
	for name := range strings.SplitSeq(f.server.address, ",") {
		all = append(all, output.Instance{Name: strings.TrimSpace(name)})
	}
	var group sync.WaitGroup
	for i := range all {
		group.Go(func() {
			one := *f
			one.server = adminServer{address: all[i].Name}
			var st admin.Status
			if _, err := one.client().Get(ctx, "/debug/status", nil, &st); err != nil {
				all[i].Error = err.Error()
				return
			}
			all[i].Status = &st
		})
	}
	group.Wait()
	var err error
	out := w
	if asJSON {
		err, w = printJSON(out, all), io.Discard
	}
	if check {
		well, checkErr := output.CheckFleet(w, all)
		if err = errors.Join(err, checkErr); err == nil && !well {
			return &failure{code: exitFindings}
		}
		return err
	}
	err = errors.Join(err, output.Fleet(w, all, time.Now(), output.ScreenOf(out)))
	if silent := slices.IndexFunc(all, func(i output.Instance) bool { return i.Status == nil }); err == nil && silent >= 0 {
		return errors.New(all[silent].Error)
	}
	return err
}
