package main

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	"tributary/cmd/internal/client"

	"github.com/spf13/cobra"

	"tributary/server/admin"
)

func newUpgrade() *cobra.Command {
	var flags adminFlags
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Have the program that is installed now take over from the server that runs",
		Long: `Upgrade has a server start the program that is now where it was started from, with the same arguments, and hand its ports over. The new
process begins with what the old one serves and has kept, whether its sources can be read or not. The old one sends its clients away, a few at a time, and ends. No
client is refused meanwhile, and none is sent away before the new process answers.

If the new process does not start, its configuration is not valid, or it does not serve within --timeout, the server goes on as before; upgrade says why and exits
with 1. If an upgrade is in progress already, it exits with 75.

Listen addresses do not change: to change them, restart.`,
		Example: `  tributary upgrade
  tributary upgrade --admin unix:///run/tributary/admin.sock`,
		Args: cobra.NoArgs,
		RunE: does(func(cmd *cobra.Command, _ []string) error {
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			server := flags.client()
			within := server.Timeout
			server.Timeout += 30 * time.Second // for the server to say why
			done, err := server.Post(ctx, "/-/upgrade", url.Values{"by": {whoAmI()}, "within": {within.String()}})
			if answer, ok := errors.AsType[*client.StatusError](err); ok && answer.Code == http.StatusNotFound {
				return errors.New("the server is older than this command: restart it")
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
	timeout := cmd.Flags().Lookup("timeout")
	timeout.DefValue, timeout.Usage, flags.timeout = admin.UpgradeWithin.String(), "how long the upgrade may take", admin.UpgradeWithin
	return cmd
}
