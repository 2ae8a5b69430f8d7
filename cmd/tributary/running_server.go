package main

import (
	"context"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/check"
	"tributary/server/admin"
)

// addReference adds the flags of a running server with objects that others are checked against.
func (f *adminFlags) addReference(cmd *cobra.Command) {
	f.server.add(cmd, "address of the admin server of the tributary that serves the objects")
	f.secure.add(cmd)
	f.timeout = answerTimeout
}

// readInto adds the objects that the server serves to a linter.
func (f *adminFlags) readInto(ctx context.Context, linter *check.Linter) error {
	var status admin.Status
	if _, err := f.client().Get(ctx, "/debug/status", nil, &status); err != nil {
		return err
	}
	unread := ""
	for i := range status.Sources {
		if source := &status.Sources[i]; !source.Synced && source.Restored == nil {
			unread = "source " + source.Name + " of the server"
		}
	}
	objects, err := f.client().Page(ctx, "/debug/configz")
	if err != nil {
		return err
	}
	return linter.AddServed(objects, unread)
}

// checkTogether checks all objects of a linter together with those of a server. Without an address that the user gave,
// a server need not run.
func checkTogether(ctx context.Context, command *cobra.Command, linter *check.Linter, running *adminFlags) error {
	if err := running.readInto(ctx, linter); err != nil {
		if command.Flags().Changed("admin") {
			return err
		}
		if err := linter.AddServed([]byte("[]"), "the content of a server"); err != nil {
			return err
		}
	}
	if err := linter.CheckConflicts(ctx); err != nil {
		return err
	}
	linter.CheckReferences()
	if linter.Unchecked != "" {
		command.PrintErrln(linter.Unchecked)
	}
	return nil
}
