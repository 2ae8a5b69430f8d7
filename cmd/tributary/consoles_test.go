package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/docs"
	"tributary/internal/pagetest"
	"tributary/internal/testutil"
)

var times = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// TestPages runs the console blocks of the pages that need only the program, and compares the output with the page.
func TestPages(t *testing.T) {
	t.Parallel()
	blocks, err := pagetest.Of("../..", pagetest.Commands)
	require.NoError(t, err)
	for id, block := range blocks {
		t.Run(strings.ReplaceAll(id, "#", " "), func(t *testing.T) {
			prepare := consoles[id]
			require.NotNil(t, prepare, "add the block to consoles")
			dir := t.TempDir()
			sandbox := &pagetest.Sandbox{
				Dir:      dir,
				Programs: map[string]string{"tributary": asProgram + "=1 exec '" + os.Args[0] + `' "$@"`},
				Env:      []string{"XDG_STATE_HOME=" + dir + "/.state"},
				Instead:  map[string]string{"/etc/tributary": dir + "/etc/tributary", "/var/log": dir + "/var/log"},
				Ends:     map[string][]int{},
				Until:    map[string]string{},
			}
			t.Cleanup(sandbox.Close)
			prepare(t, sandbox)
			require.NoError(t, sandbox.Run(block))
		})
	}
}

// consoles has the environment of each block.
var consoles = map[string]func(*testing.T, *pagetest.Sandbox){
	"README.md#two-commands": func(t *testing.T, s *pagetest.Sandbox) {
		quickstart(t, s)
		s.Until["make run"] = "synced"
		s.Stay = []string{"make run"}
	},
	"README.md#five-minutes-to-an-istiod-that-holds-your-files": func(t *testing.T, s *pagetest.Sandbox) {
		quickstart(t, s)
		ask(s, serving(t, "-c", s.Dir+"/testdata/tributary.yaml"))
		s.Until["bin/tributary watch"] = "reviews"
	},
	"docs/doctor.md#init": func(t *testing.T, s *pagetest.Sandbox) {
		write(t, s.Dir+"/rules/a.yaml", entry("a", 80))
		alone(s)
	},
	"docs/doctor.md#doctor": func(t *testing.T, s *pagetest.Sandbox) {
		write(t, s.Dir+"/rules/a.yaml", entry("a", 80))
		write(t, s.Dir+"/tributary.yaml", "configSources: [{name: rules, address: 'fs://./rules'}]\nlisten: {xds: '127.0.0.1:0', admin: "+
			"'localhost:0'}\n")
		s.Instead["127.0.0.1:16010"], s.Instead["127.0.0.1:16014"] = "127.0.0.1:0", "localhost:0"
	},
	"docs/history.md#history":   servedSides,
	"docs/history.md#history 2": servedSides,
	"docs/history.md#history 3": servedSides,

	"docs/commands.md#tributary-access-check": func(t *testing.T, s *pagetest.Sandbox) {
		write(t, s.Dir+"/tributary.yaml", "configSources: [{address: 'fs://./rules'}]\nlisten: {xdsTLS: {certificate: c.pem, key: k.pem, "+
			"clientCAs: ca.pem}}\nidentity: {tokens: tokens}\naccess:\n"+
			"- {who: {spiffe: ['spiffe://cluster.local/ns/prod/*']}, allow: {namespaces: [prod]}}\n- {who: {token: [ci], cidr: [10.0.0.0/8]}, "+
			"allow: {types: [clusters]}}\n")
		write(t, s.Dir+"/rules/a.yaml", entry("a", 80))
		got := command(t, "token", "new", "ci", "--file", s.Dir+"/tokens")
		require.Zero(t, got.code, got.stderr)
	},
	"docs/commands.md#tributary-bootstrap": grpcClient,
	"docs/clients/istiod.md#connect-it":    grpcClient,
	"docs/clients/grpc.md#connect-it":      grpcClient,
	"docs/clients/grpc.md#connect-it 2":    grpcClient,
	"docs/commands.md#tributary-bundle": func(t *testing.T, s *pagetest.Sandbox) {
		server := askWorld(t, s)
		s.Instead["tributary bundle -c"] = "tributary bundle --admin " + server.admin + " -c" // which has ports that were free
		write(t, s.Dir+"/var/log/tributary.log", "{}\n")
		s.Programs["journalctl"] = "echo a line"
		s.Before = func(pagetest.Step) { // a bundle has a name of its time, and none is written over another
			old, err := os.ReadDir(s.Dir)
			require.NoError(t, err)
			for _, f := range old {
				if strings.HasSuffix(f.Name(), ".tar.gz") {
					require.NoError(t, os.Remove(s.Dir+"/"+f.Name()))
				}
			}
		}
	},
	"docs/commands.md#tributary-client-kick": func(t *testing.T, s *pagetest.Sandbox) {
		const client = "sidecar~10.0.0.1~web.shop~shop.svc.cluster.local"
		server := askWorld(t, s)
		var events testutil.Buffer
		t.Cleanup(commandUntil(t, &events, "watch", "se", "--server", server.xds, "--node-id", client))
		eventually(t, func() error {
			_, body := server.page(t, "/debug/clients")
			return contains(body, client)
		})
	},
	"docs/commands.md#tributary-config": func(t *testing.T, s *pagetest.Sandbox) {
		configure(t, s)
		write(t, s.Dir+"/tributary.yaml", anywhere+"configSources: [{name: rules, address: 'fs://./rules'}]\n")
	},
	"docs/commands.md#tributary-diff": func(t *testing.T, s *pagetest.Sandbox) {
		server := askWorld(t, s)
		s.Instead["replica-1:16010"], s.Instead["replica-2:16010"] = server.xds, server.xds
		s.Instead["--at 1h"], s.Instead["2026-05-04 03:00"] = "--at 0s", time.Now().UTC().Add(time.Second).Format("2006-01-02 15:04:05")
		write(t, s.Dir+"/rules.old/a.yaml", entry("reviews", 80))
		s.Ends["tributary diff rules.old/"], s.Ends["helm"] = []int{3}, []int{3}
		s.Programs["helm"] = "cat rules.old/a.yaml"
	},
	"docs/commands.md#tributary-explain":    asksWorld,
	"docs/commands.md#tributary-guard-list": asksWorld,
	"docs/commands.md#tributary-guard-release": func(t *testing.T, s *pagetest.Sandbox) {
		server := askWorld(t, s)
		held := regexp.MustCompile(`(?m)^  hold +(\S+)$`)
		s.Before = func(pagetest.Step) { // each releases a loss
			many := ""
			for i := range 30 {
				many += "---\n" + entry(fmt.Sprint("entry-", i), 80)
			}
			write(t, s.Dir+"/rules/many.yaml", many)
			eventually(t, func() error {
				return contains(command(t, "get", "se", "-A", "--server", server.xds).stdout, "entry-29")
			})
			write(t, s.Dir+"/rules/many.yaml", entry("entry-0", 80))
			eventually(t, func() error {
				list := command(t, "guard", "list", "--admin", server.admin).stdout
				if id := held.FindStringSubmatch(list); id != nil {
					s.Instead["mi9x2k1c"] = id[1]
				}
				return contains(list, "hold ")
			})
		}
	},
	"docs/commands.md#tributary-history": asksWorld,
	"docs/commands.md#tributary-init": func(t *testing.T, s *pagetest.Sandbox) {
		write(t, s.Dir+"/etc/tributary/rules/a.yaml", entry("a", 80))
		alone(s)
	},
	"docs/commands.md#tributary-log-level": asksWorld,
	"docs/commands.md#tributary-reload":    asksWorld,
	"docs/commands.md#tributary-schema": func(t *testing.T, s *pagetest.Sandbox) {
		t.Cleanup(func() { // the output of the command
			schema, err := os.ReadFile(s.Dir + "/tributary.schema.json")
			require.NoError(t, err)
			require.Equal(t, docs.Schema, schema)
		})
	},
	"docs/commands.md#tributary-serve": func(t *testing.T, s *pagetest.Sandbox) {
		configure(t, s)
		s.Instead["fs:///etc/istio/rules --listen 0.0.0.0:16010"] = "fs://" + s.Dir + "/rules --listen 127.0.0.1:0 --admin 127.0.0.1:0"
		s.Until["tributary serve"] = "synced"
	},
	"docs/commands.md#tributary-status": func(t *testing.T, s *pagetest.Sandbox) {
		askWorld(t, s)
		s.Instead["mesh-2.example:16014"] = s.Instead["mesh-1.example:16014"]
		s.Programs["page-operator"] = "echo nobody is to be woken; exit 9"
	},
	"docs/commands.md#tributary-token-new": configure,
	"docs/commands.md#tributary-validate": func(t *testing.T, s *pagetest.Sandbox) {
		configure(t, s)
		write(t, s.Dir+"/tributary.yaml", "configSources: [{address: 'fs://./rules'}]\n"+anywhere)
		s.Programs["helm"] = "cat rules/*.yaml"
		envoy := s.Dir + "/envoy"
		s.Instead["/usr/local/bin/envoy"] = envoy
		const program = "#!/bin/sh\necho 'envoy  version: 0123456789abcdef/1.36.4/Clean/RELEASE/BoringSSL'\n"
		require.NoError(t, os.WriteFile(envoy, []byte(program), 0o700)) //nolint:gosec // a program
	},
	"docs/commands.md#tributary-watch": func(t *testing.T, s *pagetest.Sandbox) {
		askWorld(t, s)
		s.Until["tributary watch"] = "reviews"
	},
}

// grpcClient adds a program that accepts the bootstrap of a gRPC client.
func grpcClient(t *testing.T, s *pagetest.Sandbox) {
	t.Helper()
	write(t, s.Dir+"/client", "#!/bin/sh\ncase $GRPC_XDS_BOOTSTRAP_CONFIG$(cat \"$GRPC_XDS_BOOTSTRAP\") in *xds_servers*) ;; *) exit 9 ;; "+
		"esac\n")
	require.NoError(t, os.Chmod(s.Dir+"/client", 0o700)) //nolint:gosec // it is run
}

// anywhere makes a server listen on free ports, and store files only in its directory.
const anywhere = "listen: {xds: '127.0.0.1:0', admin: '127.0.0.1:0'}\n"

// alone hides registries of this machine from init.
func alone(s *pagetest.Sandbox) {
	s.Instead["tributary init tributary.yaml"] = "tributary init tributary.yaml --host 192.0.2.1"
	s.Instead["--host registry.example"] = "--host 192.0.2.1"
}

// ask has the commands of the sandbox ask a server, whatever it is called.
func ask(sandbox *pagetest.Sandbox, server server) {
	sandbox.Env = append(sandbox.Env, "TRIBUTARY_SERVER="+server.xds, "TRIBUTARY_ADMIN="+server.admin)
	for _, host := range []string{"127.0.0.1", "mesh-1.example"} {
		sandbox.Instead[host+":16010"], sandbox.Instead[host+":16014"] = server.xds, server.admin
	}
	for _, istiod := range []string{"istiod.example:15010", "istiod.example:15012 --tls-ca ca.pem --token-file token"} {
		sandbox.Instead[istiod] = server.xds // any server of xDS will do
	}
}

// quickstart makes the sandbox a checkout in which the program is built.
func quickstart(t *testing.T, sandbox *pagetest.Sandbox) {
	t.Helper()
	require.NoError(t, os.CopyFS(sandbox.Dir+"/testdata", os.DirFS("../../testdata")))
	config, err := os.ReadFile("../../testdata/tributary.yaml")
	require.NoError(t, err)
	free := strings.NewReplacer("127.0.0.1:16010", "127.0.0.1:0", "127.0.0.1:16014", "127.0.0.1:0").Replace(string(config))
	require.NotEqual(t, string(config), free)
	write(t, sandbox.Dir+"/testdata/tributary.yaml", free)
	makefile, err := os.ReadFile("../../Makefile")
	require.NoError(t, err)
	write(t, sandbox.Dir+"/Makefile", string(makefile))
	sandbox.Env = append(sandbox.Env, "GO=true") // it would build and test the tested program itself
	write(t, sandbox.Dir+"/bin/tributary", "#!/bin/sh\n"+sandbox.Programs["tributary"]+"\n")
	require.NoError(t, os.Chmod(sandbox.Dir+"/bin/tributary", 0o700)) //nolint:gosec // it is run
}

// configure writes a configuration and its rules, those that the examples speak of.
func configure(t *testing.T, s *pagetest.Sandbox) {
	t.Helper()
	write(t, s.Dir+"/rules/reviews.yaml", named("reviews", "10.2.0.3")+`---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop}
spec: {hosts: [reviews.shop.svc.cluster.local], http: [{route: [{destination: {host: reviews.shop.svc.cluster.local}}]}]}
`)
	write(t, s.Dir+"/etc/tributary/tributary.yaml", anywhere+"stateDir: ../../state\nconfigSources: [{name: rules, address: "+
		"'fs://../../rules'}]\n")
}

// world serves the files that configure writes.
func world(t *testing.T, s *pagetest.Sandbox) server {
	t.Helper()
	configure(t, s)
	server := serving(t, "-c", s.Dir+"/etc/tributary/tributary.yaml")
	server.awaitReady(t)
	eventually(t, func() error {
		got := command(t, "get", "se", "--at", "0s", "-A", "--admin", server.admin)
		return contains(got.stdout, "reviews")
	})
	return server
}

// askWorld serves these files, and has the commands of the sandbox ask that server.
func askWorld(t *testing.T, s *pagetest.Sandbox) server {
	t.Helper()
	server := world(t, s)
	ask(s, server)
	return server
}

func asksWorld(t *testing.T, s *pagetest.Sandbox) {
	t.Helper()
	askWorld(t, s)
}

// named is a service with an endpoint.
func named(name, address string) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata:
  name: %s
  namespace: shop
  labels: {app: %[1]s}
  annotations: {tributary/dubbo-interface: com.acme.Demo, tributary/derived-from: HTTPRoute/shop/reviews}
spec:
  hosts: [%[1]s.shop.svc.cluster.local]
  ports: [{number: 80, name: http, protocol: HTTP}]
  resolution: STATIC
  endpoints: [{address: %s}]
`, name, address)
}

// servedSides has a server with the history that docs/history.md tells of.
func servedSides(t *testing.T, s *pagetest.Sandbox) {
	t.Helper()
	rules := s.Dir + "/etc/tributary/rules/"
	write(t, rules+"reviews.yaml", entry("reviews", 80))
	write(t, rules+"ratings.yaml", entry("ratings", 80))
	write(t, s.Dir+"/tributary.yaml", anywhere+"stateDir: state\nconfigSources: [{name: rules, address: 'fs://./etc/tributary/rules'}]\n")
	server := serving(t, "-c", s.Dir+"/tributary.yaml")
	server.awaitReady(t)
	ask(s, server)
	say := func(args ...string) result { return command(t, append(args, "--admin", server.admin)...) }
	eventually(t, func() error { return contains(say("get", "se", "--at", "0s", "-A").stdout, "ratings") })
	write(t, rules+"reviews.yaml", entry("reviews", 9080))
	eventually(t, func() error { return contains(say("history").stdout, "ServiceEntry shop/reviews") })
	s.Instead["2026-05-04T03:00:00Z"] = times.FindString(say("history").stdout)
	require.NoError(t, os.Remove(rules+"ratings.yaml"))
	eventually(t, func() error { return contains(say("history").stdout, "ServiceEntry shop/ratings") })
	s.Ends["tributary diff"] = []int{3}
}
