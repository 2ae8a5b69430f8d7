package main

import (
	"bytes"
	"cmp"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/client"
	"tributary/config"
	"tributary/internal/words"
)

func newBootstrap() *cobra.Command {
	var opts client.Bootstrap
	var secure secureFlags
	var namespace, interception string
	command := &cobra.Command{
		Use:   "bootstrap {" + strings.Join(client.BootstrapClients(), " | ") + "}",
		Short: "Print the configuration for a client to find a server",
		Long: `Bootstrap prints the configuration for a client to find an xDS server: the configSources of istiod, the
bootstrap file of Envoy or of a gRPC program, a source of another tributary. It asks no server. Standard error has
instructions.`,
		Example: `  tributary bootstrap istiod --server mesh-1.example:16010
  tributary bootstrap envoy --server mesh-1.example:16010 --label istio=ingressgateway \
    --node-id router~10.0.0.9~front.default~default.svc.cluster.local
  tributary bootstrap envoy --server mesh-1.example:16010 --namespace shop --interception REDIRECT --admin 127.0.0.1:15000
  tributary bootstrap envoy --server mesh-1.example:16010 --namespace shop --spire /run/spire/sockets/agent.sock
  tributary bootstrap envoy --server mesh-1.example:16012 --tls-ca ca.crt --tls-cert client.crt --tls-key client.key
  tributary bootstrap envoy --server istiod.example:15010 --node-id sidecar~10.0.0.7~web.shop~shop.svc.cluster.local
  GRPC_XDS_BOOTSTRAP_CONFIG=$(tributary bootstrap grpc) ./client xds:///reviews.example:80
  tributary bootstrap grpc --server istiod.example:15010 --node-id sidecar~10.0.0.7~web.shop~shop.svc.cluster.local \
    --metadata GENERATOR=grpc,NAMESPACE=shop`,
		Args:      cobra.ExactArgs(1),
		ValidArgs: client.BootstrapClients(),
		RunE: runCommand(func(command *cobra.Command, args []string) error {
			if !slices.Contains(client.BootstrapClients(), args[0]) {
				return usage("unknown client %q%s; known: %s", args[0], words.Suggestion(args[0], client.BootstrapClients()),
					strings.Join(client.BootstrapClients(), ", "))
			}
			if err := checkFlagsOfClient(command, args[0]); err != nil {
				return err
			}
			if opts.NodeID == "" {
				opts.NodeID, _ = os.Hostname() // a node without a name is refused by the server, if it minds
			}
			opts.TLS = secure.settings()
			if modes := []string{"", "NONE", "REDIRECT", "TPROXY"}; !slices.Contains(modes, interception) {
				return usage("unknown interception %q%s; known: NONE, REDIRECT, TPROXY", interception,
					words.Suggestion(interception, modes[1:]))
			}
			opts.Metadata = nodeMetadata(args[0], opts.Metadata, namespace, interception)
			var text bytes.Buffer
			hint, err := client.WriteBootstrap(&text, args[0], opts)
			if err != nil {
				return usage("%w", err)
			}
			if _, err := text.WriteTo(command.OutOrStdout()); err != nil {
				return err
			}
			command.PrintErrln(hint)
			return nil
		}),
	}
	flagSet := command.Flags()
	flagSet.Var(xdsServer{&opts.Server}, "server", "host:port of the server, as the client reaches it"+
		defaultsHelp(envServer, "listen.xds", config.DefaultXDS))
	flagSet.StringVar(&opts.NodeID, "node-id", "", "id of the client's node, for envoy and grpc (default: the host name)")
	flagSet.StringToStringVar(&opts.Metadata, "metadata", nil,
		"metadata of that node, such as GENERATOR=grpc, which istiod wants of a gRPC program")
	flagSet.StringToStringVar(&opts.Labels, "label", nil,
		"labels of its workload, such as istio=ingressgateway, for the selectors of Gateways")
	flagSet.StringVar(&namespace, "namespace", "",
		"namespace of that node; its rules come first (default: that of the id, else default)")
	flagSet.StringVar(&interception, "interception", "",
		"how connections come to Envoy's listeners: NONE (they bind 127.0.0.1:<service port>), "+
			"REDIRECT or TPROXY (default NONE)")
	flagSet.StringVar(&opts.Admin, "admin", client.DefaultEnvoyAdmin, "host:port of Envoy's admin server")
	flagSet.StringVar(&opts.SPIRE, "spire", "", "socket of SPIRE's agent, for Envoy's identity in mutual TLS")
	flagSet.StringVar(&opts.Identity, "identity-dir", "",
		"directory that has Envoy's identity: cert-chain.pem, key.pem and root-cert.pem")
	secure.addTLS(command)
	flagSet.BoolVar(&opts.Kubernetes, "kubernetes", true, "istiod runs on Kubernetes, and goes on reading its CRDs")
	return command
}

// nodeMetadata returns the metadata of a client's node with the values of flags. istiod's default of the interception
// mode is REDIRECT.
func nodeMetadata(client string, metadata map[string]string, namespace, interception string) map[string]string {
	if client == "envoy" {
		interception = cmp.Or(interception, metadata["INTERCEPTION_MODE"], "NONE")
	}
	for key, value := range map[string]string{"NAMESPACE": namespace, "INTERCEPTION_MODE": interception} {
		if value == "" {
			continue
		}
		if metadata == nil {
			metadata = make(map[string]string)
		}
		metadata[key] = value
	}
	return metadata
}

// checkFlagsOfClient refuses flags without a meaning for that kind of client.
func checkFlagsOfClient(command *cobra.Command, client string) error {
	for _, flag := range []struct {
		name    string
		clients []string
	}{
		{"node-id", []string{"envoy", "grpc"}},
		{"metadata", []string{"envoy", "grpc"}},
		{"label", []string{"envoy", "grpc"}},
		{"kubernetes", []string{"istiod"}},
		{"namespace", []string{"envoy", "grpc"}},
		{"interception", []string{"envoy"}},
		{"admin", []string{"envoy"}},
		{"spire", []string{"envoy"}},
		{"identity-dir", []string{"envoy"}},
	} {
		if command.Flags().Changed(flag.name) && !slices.Contains(flag.clients, client) {
			return usage("--%s is for %s, and not for %s", flag.name, strings.Join(flag.clients, " and "), client)
		}
	}
	return nil
}
