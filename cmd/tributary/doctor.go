package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/check"
	"tributary/cmd/internal/client"
	"tributary/config"
	"tributary/internal/words"
	"tributary/server/admin"
)

func newDoctor() *cobra.Command {
	var doctor check.Doctor
	var secure secureFlags
	var strict bool
	var through string
	var idle time.Duration
	format := outputs("text", "json")
	command := &cobra.Command{
		Use:   "doctor [-c FILE]",
		Short: "Check everything that a server needs, and print a remedy for each problem",
		Long: `Doctor checks the configuration and its sources, as validate --connect does: whether each can be read, with
the rights that it needs; certificates, the files of tokens and keys, ports, and the state directory. With --istiod or
--mesh-config it also checks that istiod's configSources have this server, and Kubernetes; of a running server, that
it has the types that its clients request. With --through it holds an idle stream through the address that istiod has
for this server, with istiod's pings, and prints the reason for its end. Run it as the user of the server. It makes no
changes.

It exits with 3 if there is an error; with --strict also if there is a warning.`,
		Example: `  tributary doctor
  tributary doctor -c /etc/tributary/tributary.yaml --istiod http://istiod.example:8080
  tributary doctor --mesh-config mesh.yaml --strict -o json
  tributary doctor --through mesh.example:16010`,
		Args: cobra.NoArgs,
		RunE: runInterruptible(func(ctx context.Context, command *cobra.Command, _ []string) error {
			if doctor.File == "" {
				doctor.File, doctor.NoFile = config.Find(config.DefaultPaths())
			}
			doctor.Running = func(ctx context.Context, cfg *config.Config) *check.Running { return running(ctx, cfg, &secure) }
			if through != "" {
				doctor.Through = &check.Through{
					Client: &client.XDS{
						Server: strings.TrimPrefix(through, "xds://"), TLS: secure.settings(), TokenFile: secure.tokenFile(),
						Timeout: answerTimeout, Log: slog.New(slog.DiscardHandler),
						NodeID: fmt.Sprintf("sidecar~127.0.0.1~tributary-doctor-%d.default~default.svc.cluster.local", os.Getpid()),
					},
					Hold:    idle,
					Holding: func() { command.PrintErrf("an idle stream is held through %s for %s\n", through, idle) },
				}
			}
			err := doctor.Run(ctx)
			switch {
			case err != nil:
			case format.value == "json":
				err = printJSON(command.OutOrStdout(), doctor.Findings)
			default:
				err = check.WriteResults(command.OutOrStdout(), doctor.Findings)
			}
			if err != nil {
				return err
			}
			count := make(map[check.Severity]int)
			for _, finding := range doctor.Findings {
				count[finding.Severity]++
			}
			command.PrintErrf("%s, %s\n", words.Count(count[check.Error], "error", "errors"), words.Count(count[check.Warning],
				"warning", "warnings"))
			if count[check.Error] > 0 || strict && count[check.Warning] > 0 {
				return &failure{code: exitFindings}
			}
			return nil
		}),
	}
	flagSet := command.Flags()
	addConfig(command, &doctor.File, "")
	flagSet.StringVar(&doctor.Istiod, "istiod", "",
		"http://HOST:PORT of the debug pages of the istiod that reads from this server, by default port 8080")
	flagSet.StringVar(&doctor.MeshConfig, "mesh-config", "",
		"file with the mesh configuration of that istiod, or values of its Helm chart")
	flagSet.StringVar(&through, "through", "",
		"HOST:PORT of this server in the configSources of istiod: hold an idle stream through it")
	flagSet.DurationVar(&idle, "idle", idleFor, "how long to hold that stream")
	flagSet.BoolVar(&doctor.Offline, "offline", false, "do not use the network: only sources of files are read")
	flagSet.BoolVar(&strict, "strict", false, "exit with 3 for warnings, too")
	secure.add(command)
	format.add(command)
	return command
}

// idleFor is longer than the most common limits of balancers, which are 60 s, and than the time after which a gRPC
// server with default settings refuses pings that come every 30 s.
const idleFor = 130 * time.Second

var buildInfo = regexp.MustCompile(`(?m)^tributary_build_info\{.*version="([^"]*)"`)

// runningWithoutDebug reads the metrics, which a server without the debug pages has, too.
func runningWithoutDebug(ctx context.Context, server *client.Admin) *check.Running {
	page, _ := server.Page(ctx, "/metrics") // without one there is no socket
	if build := buildInfo.FindSubmatch(page); build != nil {
		return &check.Running{Version: string(build[1])}
	}
	return nil
}

type connected struct {
	Node  string `json:"node"`
	Types []struct {
		TypeURL string `json:"type_url"`
	} `json:"types"`
}

func clientsOf(ctx context.Context, server *client.Admin) (clients []connected, err error) {
	_, err = server.Get(ctx, "/debug/clients", nil, &clients)
	return clients, err
}

// running returns the status of the server that runs with cfg; nil without a server.
func running(ctx context.Context, cfg *config.Config, secure *secureFlags) *check.Running {
	server := &client.Admin{Address: adminOf(&cfg.Listen), Timeout: ageTimeout}
	if cfg.Listen.AdminTLS != nil { // else the flags of TLS are for --through
		server.TLS = secure.settings()
	}
	var status admin.Status
	if _, err := server.Get(ctx, "/debug/status", nil, &status); err != nil || status.Version == "" {
		return runningWithoutDebug(ctx, server)
	}
	result := &check.Running{
		Version: status.Version, File: status.Config.File, NodesByType: make(map[string][]string),
	}
	clients, err := clientsOf(ctx, server)
	if err != nil {
		return result
	}
	result.Clients = len(clients)
	for _, connection := range clients {
		for _, t := range connection.Types {
			result.NodesByType[t.TypeURL] = append(result.NodesByType[t.TypeURL], connection.Node)
		}
	}
	return result
}
