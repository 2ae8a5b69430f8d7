package main

import (
	"errors"
	"io"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/client"
)

func newReload() *cobra.Command {
	var flags adminFlags
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Have a server read its configuration file again",
		Long: `Reload has a server put its configuration file in force, as SIGHUP does, and says what that changed. A file that is
not right changes nothing: reload says what is wrong with it and exits with 78. The server logs who asked for it.`,
		Example: `  tributary reload
  tributary reload --admin mesh-1.example:16014`,
		Args: cobra.NoArgs,
		RunE: does(func(cmd *cobra.Command, _ []string) error {
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			done, err := flags.client().Post(ctx, "/-/reload", url.Values{"by": {whoAmI()}})
			if answer, ok := errors.AsType[*client.StatusError](err); ok && answer.Code == http.StatusInternalServerError {
				return &failure{exitConfig, err}
			}
			if err != nil {
				return err
			}
			flags.nameServer(cmd)
			_, err = io.WriteString(cmd.OutOrStdout(), done)
			return err
		}),
	}
	flags.add(cmd)
	return cmd
}
