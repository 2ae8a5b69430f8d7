package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
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
			err := doctor.Look(ctx)
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
		"http://HOST:PORT of the debug pages of an istiod that is to read from us, by default port 8080")
	flagSet.StringVar(&doctor.MeshConfig, "mesh-config", "",
		"file with the mesh configuration of that istiod, or values of its Helm chart")
	flagSet.StringVar(&through, "through", "",
		"HOST:PORT of this server in the configSources of istiod: hold an idle stream through it")
	flagSet.DurationVar(&idle, "idle", idleFor, "for how long that stream is to stand")
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

const logTail = 4 << 20

// bundledPages are the packed pages of the admin server. None has the content of objects.
var bundledPages = []struct{ name, path string }{
	{"status.json", "/debug/status"},
	{"sources.json", "/debug/sources"},
	{"clients.json", "/debug/clients"},
	{"guard.json", "/debug/guard"},
	{"quarantine.json", "/debug/quarantine"},
	{"rejected.json", "/debug/rejected"},
	{"conflicts.json", "/debug/conflicts"},
	{"competing.json", "/debug/competing"},
	{"history.json", "/debug/history?limit=1000"},
	{"metrics.txt", "/metrics"},
	{"goroutines.txt", "/debug/pprof/goroutine?debug=2"},
}

func newBundle() *cobra.Command {
	var flags adminFlags
	var log, archivePath string
	command := &cobra.Command{
		Use:   "bundle",
		Short: "Pack the files for a fault report, without secrets",
		Long: `Bundle writes an archive with the versions, the configuration, the findings of doctor without the network,
and of the running server its status, sources, clients, holds, findings, metrics, goroutines and last changes; with
--log also the end of its log. It has names and addresses, and no contents of objects. Passwords, tokens and keys of
the configuration, or of files that it names, are removed, as are its comments. Missing parts are listed in
errors.txt.`,
		Example: `  tributary bundle
  tributary bundle -c /etc/tributary/tributary.yaml --log /var/log/tributary.log --file report.tar.gz
  journalctl -u tributary -n 20000 > log && tributary bundle --log log`,
		Args: cobra.NoArgs,
		RunE: runInterruptible(func(ctx context.Context, command *cobra.Command, _ []string) error {
			now := time.Now().UTC()
			name := "tributary-" + now.Format("20060102T150405Z")
			if archivePath == "" {
				archivePath = name + ".tar.gz"
			}
			pack := packing{}
			pack.try("version", pack.program())
			pack.try("configuration", pack.configuration(ctx, flags.config))
			silent := pack.server(ctx, &flags)
			if log != "" {
				pack.try("log", pack.log(log))
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if len(pack.errors) > 0 {
				pack.add("errors.txt", []byte(strings.Join(pack.errors, "\n")+"\n"))
			}
			var archive bytes.Buffer
			if err := check.WriteBundle(&archive, name, pack.files, &pack.secrets, now); err != nil {
				return err
			}
			if err := writeNew(archivePath, archive.Bytes(), 0o600); err != nil {
				return err
			}
			for _, text := range pack.errors {
				command.PrintErrf("warning: %s\n", pack.secrets.Hide([]byte(text)))
			}
			if _, err := fmt.Fprintf(command.OutOrStdout(),
				"%s is written: look into it before you give it away\n", archivePath); err != nil || silent == nil {
				return err
			}
			return fmt.Errorf("%s lacks the data of the server: %w", archivePath, silent)
		}),
	}
	flags.add(command)
	command.Flags().StringVar(&log, "log", "", "file with the log of the server")
	command.Flags().StringVar(&archivePath, "file", "",
		"archive to write; one that is there is left as it is (default: tributary-TIME.tar.gz)")
	return command
}

type packing struct {
	files   []check.BundleFile
	errors  []string
	secrets check.Secrets
}

func (p *packing) add(name string, text []byte) {
	p.files = append(p.files, check.BundleFile{Name: name, Text: text})
}

// try notes the error of a part that could not be packed.
func (p *packing) try(part string, err error) {
	if err != nil {
		p.errors = append(p.errors, part+": "+strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}

func (p *packing) program() error {
	var b bytes.Buffer
	err := printJSON(&b, thisBuild())
	p.add("version.json", b.Bytes())
	return err
}

// configuration packs the file without its secrets, and the report of doctor.
func (p *packing) configuration(ctx context.Context, file string) (err error) {
	if file == "" {
		if file, err = config.Find(config.DefaultPaths()); err != nil {
			return err
		}
	}
	files, err := config.Files(file)
	if err != nil {
		return err
	}
	for _, path := range files {
		name := "tributary.yaml"
		if path != file {
			name = "tributary.yaml.d/" + filepath.Base(path)
		}
		text, err := os.ReadFile(path)
		if err == nil {
			text, err = p.secrets.Configuration(text, filepath.Dir(path))
		}
		if err != nil {
			return err
		}
		p.add(name, text)
	}
	doctor := check.Doctor{
		File: file, Offline: true,
		Running: func(ctx context.Context, cfg *config.Config) *check.Running {
			return running(ctx, cfg, &secureFlags{})
		},
	}
	p.try("doctor", doctor.Look(ctx))
	var report bytes.Buffer
	err = check.WriteResults(&report, doctor.Findings)
	p.add("doctor.txt", report.Bytes())
	return err
}

// server packs the pages of the admin server. The error is the reason if it packed none.
func (p *packing) server(ctx context.Context, flags *adminFlags) (silent error) {
	server, before := flags.client(), len(p.files)
	for _, page := range bundledPages {
		text, err := server.Page(ctx, page.path)
		if err != nil {
			p.try(page.path, err)
			silent = err
			continue
		}
		p.add(page.name, text)
	}
	if len(p.files) > before {
		return nil
	}
	return silent
}

func (p *packing) log(path string) error {
	text, err := check.Tail(path, logTail)
	if err == nil {
		p.add("log.txt", check.HideInLog(text))
	}
	return err
}
