package main

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/client"
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
