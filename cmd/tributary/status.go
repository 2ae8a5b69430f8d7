package main

import (
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/report"
	"tributary/cmd/internal/terminal"
	"tributary/server/admin"
)

func newStatus() *cobra.Command {
	var flags adminFlags
	var check bool
	output := outputs("text", "json")
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show sources, objects, conflicts, holds and clients of a server",
		Long: `Status shows all of it on one screen. With --check it says in a line each what somebody should do something about, and exits with
3 if there is anything: a server that is not ready, a configuration that is refused, a source that is not healthy, a loss that is held,
objects that are not valid, what clients reject, certificates that have expired.`,
		Example: `  tributary status
  tributary status --check || page-somebody
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
			w := cmd.OutOrStdout()
			switch {
			case check:
				if output.value == "json" {
					_, err = w.Write(page)
					w = io.Discard
				}
				well, checkErr := report.Check(w, &st)
				if err = errors.Join(err, checkErr); err == nil && !well {
					return &failure{code: exitFindings}
				}
				return err
			case output.value == "json":
				_, err = w.Write(page)
				return err
			}
			return report.Status(w, flags.client().Name(), &st, time.Now(), terminal.Of(w))
		}),
	}
	flags.add(cmd)
	cmd.Flags().BoolVar(&check, "check", false, "say what is wrong, and exit with 3 if anything is")
	output.add(cmd)
	return cmd
}
