package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/check"
	"tributary/server/admin"
)

// serverFlags name a running server with objects that others are checked against.
type serverFlags struct {
	server adminServer
	secure secureFlags
}

func (f *serverFlags) add(cmd *cobra.Command) {
	f.server.add(cmd, "address of the admin server of the tributary that serves the objects")
	f.secure.add(cmd)
}

// read adds the objects that the server serves to a linter.
func (f *serverFlags) read(ctx context.Context, l *check.Linter) error {
	flags := adminFlags{server: f.server, secure: f.secure, timeout: 10 * time.Second}
	var status admin.Status
	if _, err := flags.client().Get(ctx, "/debug/status", nil, &status); err != nil {
		return err
	}
	unread := ""
	for i := range status.Sources {
		if source := &status.Sources[i]; !source.Synced && source.Restored == nil {
			unread = "source " + source.Name + " of the server"
		}
	}
	objects, err := flags.client().Page(ctx, "/debug/configz")
	if err != nil {
		return err
	}
	return l.Served(objects, unread)
}

// checkTogether checks all objects of a linter together with those of a server. Without an address that the user gave,
// a server need not run.
func checkTogether(ctx context.Context, cmd *cobra.Command, l *check.Linter, running *serverFlags) error {
	if err := running.read(ctx, l); err != nil {
		if cmd.Flags().Changed("admin") {
			return err
		}
		if err := l.Served([]byte("[]"), "the content of a server"); err != nil {
			return err
		}
	}
	if err := l.Compete(ctx); err != nil {
		return err
	}
	l.Analyze()
	if l.Unchecked != "" {
		cmd.PrintErrln(l.Unchecked)
	}
	return nil
}
