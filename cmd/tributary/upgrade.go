package main

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/adminclient"
)

func newUpgrade() *cobra.Command {
	var flags adminFlags
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Have the program that is installed now take over from the server that runs",
		Long: `Upgrade has a server start the program that is now where it was started from, with the same arguments, and hand its ports over. The new
process reads its configuration and all sources; when it has, it serves clients, and the old one sends its own away, a few at a time, and ends. No client is
refused meanwhile, and none is sent away before the new process answers.

If the new one does not start, or its configuration is not right, the server goes on as before, and upgrade says why and exits with 1. If it does not read everything within
two minutes, the program before is started in its place, in the same way.

What the addresses of ports are stays as it is: to change them, restart.`,
		Example: `  tributary upgrade
  tributary upgrade --admin unix:///run/tributary/admin.sock`,
		Args: cobra.NoArgs,
		RunE: does(func(cmd *cobra.Command, _ []string) error {
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			client := flags.client()
			client.Timeout = 5 * time.Minute
			done, err := client.Post(ctx, "/-/upgrade", url.Values{"by": {whoAmI()}})
			if answer, ok := errors.AsType[*adminclient.StatusError](err); ok && answer.Code == http.StatusNotFound {
				return errors.New("the server is older than this command: restart it")
			}
			if err != nil {
				return err
			}
			_, err = io.WriteString(cmd.OutOrStdout(), done)
			return err
		}),
	}
	flags.add(cmd)
	return cmd
}
