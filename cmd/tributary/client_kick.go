package main

import (
	"github.com/spf13/cobra"
)

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
		Use: "client", Short: "End the streams of a client",
		Long: "Client has commands for a connected client. tributary status and /debug/clients list the clients.",
	}, kick)
}
