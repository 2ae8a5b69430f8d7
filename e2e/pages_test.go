package e2e

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
	"tributary/internal/pagetest"
)

// TestPages runs the console blocks of the pages that need real peers, and compares their output with the pages.
func TestPages(t *testing.T) {
	t.Parallel()
	blocks, err := pagetest.Of("..", pagetest.EndToEnd)
	require.NoError(t, err)
	walked := make(map[string]bool)
	for page, steps := range walks {
		t.Run(page, func(t *testing.T) {
			s := sandbox(t)
			prepare := steps.prepare(t, s)
			for _, anchor := range steps.anchors {
				block, ok := blocks[page+"#"+anchor]
				require.True(t, ok, "%s has no block under #%s", page, anchor)
				if prepare != nil {
					prepare(anchor)
				}
				require.NoError(t, s.Run(block))
			}
		})
		for _, anchor := range steps.anchors {
			walked[page+"#"+anchor] = true
		}
	}
	for id, block := range blocks {
		if walked[id] {
			continue
		}
		t.Run(strings.ReplaceAll(id, "#", " "), func(t *testing.T) {
			prepare := consoles[id]
			require.NotNil(t, prepare, "add the environment of the block to consoles or walks")
			s := sandbox(t)
			prepare(t, s)
			require.NoError(t, s.Run(block))
		})
	}
}

// sandbox has the program, and a machine of its own as far as the pages speak of it.
func sandbox(t *testing.T) *pagetest.Sandbox {
	t.Helper()
	dir := t.TempDir()
	s := &pagetest.Sandbox{
		Dir:      dir,
		Programs: map[string]string{"tributary": "exec '" + fixture.TributaryBinary(t) + `' "$@"`, "sudo": `exec "$@"`},
		Env:      []string{"XDG_STATE_HOME=" + dir + "/.state", "VISUAL="},
		Instead:  map[string]string{"/etc/tributary": dir + "/etc/tributary"},
		Ends:     map[string][]int{},
		Until:    map[string]string{},
	}
	require.NoError(t, os.MkdirAll(dir+"/etc/tributary", 0o750))
	t.Cleanup(s.Close)
	return s
}

// walks are the pages with blocks that follow from each other. prepare returns a function that runs before the block
// under an anchor.
var walks = map[string]struct {
	anchors []string
	prepare func(*testing.T, *pagetest.Sandbox) func(anchor string)
}{
	"docs/start.md": {
		[]string{
			"2-say-where-consul-is", "3-start", "4-register-a-service", "5-point-istiod-at-it", "6-see-that-it-has-it",
			"7-see-a-change-arrive",
		}, fromThePackage,
	},
	"docs/first-request.md": {[]string{"1-a-service", "2-through-envoy", "3-through-a-gateway", "4-from-grpc"}, firstRequest},
	"docs/first-mutual-tls.md": {
		[]string{
			"1-certificates", "2-a-service-and-its-policies", "3-the-services-envoy", "4-the-callers-envoy", "4-the-callers-envoy 2",
		}, firstMutualTLS,
	},
}

// fromThePackage is the machine of docs/start.md with the package installed: there is a Consul, and an istiod starts
// with the configuration of the page.
func fromThePackage(t *testing.T, s *pagetest.Sandbox) func(anchor string) {
	consul := fixture.StartConsul(t, fixture.ConsulOptions{})
	s.Programs["consul"] = "exec '" + fixture.ConsulBinary(t) + `' "$@"`
	s.Env = append(s.Env, "CONSUL_HTTP_ADDR="+consul.HTTP)
	s.Instead["127.0.0.1:8500"] = consul.HTTP
	xds, admin := fixture.Loopback(fixture.FreePort(t)), fixture.Loopback(fixture.FreePort(t))
	s.Env = append(s.Env, "TRIBUTARY_SERVER="+xds, "TRIBUTARY_ADMIN="+admin)
	s.Instead["127.0.0.1:16010"], s.Instead["127.0.0.1:16014"] = xds, admin
	s.Instead["(listen.admin of /etc/tributary/tributary.yaml)"] = "($TRIBUTARY_ADMIN)"

	// The program of the package's unit, without a systemd.
	unit, err := os.ReadFile("../packaging/files/tributary.service")
	require.NoError(t, err)
	start := regexp.MustCompile(`(?m)^ExecStart=/usr/bin/tributary (.*)$`).FindSubmatch(unit)
	require.NotNil(t, start)
	args := strings.Fields(strings.NewReplacer("/etc/tributary", s.Dir+"/etc/tributary", "/var/lib/tributary",
		s.Dir+"/var").Replace(string(start[1])))
	s.Programs["systemctl"] = `[ "$*" = "enable --now tributary" ]`
	tributary := &fixture.Tributary{XDS: xds, Admin: admin}
	s.After = func(step pagetest.Step, _ string) {
		if strings.Contains(step.Command, "systemctl enable") {
			tributary.Process = fixture.Start(t, "tributary", nil, append([]string{fixture.TributaryBinary(t)}, args...)...)
			tributary.AwaitReady(t)
		}
		if strings.Contains(step.Command, "consul services register") {
			id := regexp.MustCompile(`-address=(\S+)`).FindStringSubmatch(step.Command)[1]
			tributary.Await(t, pageNames(t, tributary, "/debug/configz", `"`+id+`"`))
		}
	}
	return func(anchor string) {
		if anchor != "6-see-that-it-has-it" {
			return
		}
		mesh, err := os.ReadFile(filepath.Join(s.Dir, "mesh.yaml")) // as the page has it written
		require.NoError(t, err)
		istiod := fixture.NewIstiodWith(t, string(mesh))
		istiod.AwaitSynced(t)
		s.Instead["127.0.0.1:8080"] = istiod.HTTP
	}
}

// firstRequest is a machine with Envoy and grpcurl, on which the ports of the page are others.
func firstRequest(t *testing.T, s *pagetest.Sandbox) func(anchor string) {
	port := func() string { return strconv.Itoa(fixture.FreePort(t)) }
	service, gateway, server := port(), port(), port()
	xds, admin := port(), fixture.Loopback(fixture.FreePort(t))
	s.Programs["tributary"] = `[ "$1" != serve ] || set -- "$@" --listen 127.0.0.1:` + xds + " --admin " + admin + "\n" +
		s.Programs["tributary"]
	s.Programs["envoy"] = "exec '" + fixture.EnvoyBinary(t) + `' --concurrency 1 "$@"`
	s.Programs["grpcurl"] = "exec '" + fixture.Grpcurl(t) + `' "$@"`
	s.Env = append(s.Env, "TRIBUTARY_SERVER=127.0.0.1:"+xds, "TRIBUTARY_ADMIN="+admin)
	maps.Copy(s.Instead, map[string]string{
		"number: 8080": "number: " + service, "127.0.0.1:8080": "127.0.0.1:" + service,
		"number: 8081": "number: " + gateway, "127.0.0.1:8081": "127.0.0.1:" + gateway,
		"http: 9080": "http: " + server, "http.server 9080": "http.server " + server,
		"127.0.0.1:16010": "127.0.0.1:" + xds, "grpc: 16010": "grpc: " + xds,
		"127.0.0.1:9901": "127.0.0.1:" + port(), "127.0.0.1:9902": "127.0.0.1:" + port(),
	})
	s.Stay = []string{"python3", "tributary serve", "envoy"}
	s.Until = map[string]string{"python3": "Serving HTTP", "tributary serve": "msg=serving", "envoy": "starting workers"}
	ready := func(step pagetest.Step) error { // a person is slower than a change
		switch {
		case strings.Contains(step.Command, "grpcurl"):
			_, body, err := fixture.Get(t.Context(), "http://"+admin+"/debug/explain?host=xds.example")
			if err == nil && !strings.Contains(body, "1 object references") {
				err = errors.New(body)
			}
			return err
		case strings.HasPrefix(step.Command, "curl"):
			to := service
			if strings.Contains(step.Command, "8081") {
				to = gateway
			}
			conn, err := net.Dial("tcp", "127.0.0.1:"+to) //nolint:noctx // of this machine
			if err == nil {
				err = conn.Close()
			}
			return err
		}
		return nil
	}
	s.Before = func(step pagetest.Step) {
		require.EventuallyWithT(t, func(c *assert.CollectT) { assert.NoError(c, ready(step)) }, 20*time.Second, 10*time.Millisecond, step.Command)
	}
	return nil
}

// firstMutualTLS is the machine of firstRequest, with the inbound port of the second page in place of the gateway's.
func firstMutualTLS(t *testing.T, s *pagetest.Sandbox) func(anchor string) {
	prepare := firstRequest(t, s)
	inbound := strconv.Itoa(fixture.FreePort(t))
	service, err := strconv.Atoi(strings.TrimPrefix(s.Instead["127.0.0.1:8080"], "127.0.0.1:"))
	require.NoError(t, err)
	maps.Copy(s.Instead, map[string]string{
		"http: 9443": "http: " + inbound, "number: 9443": "number: " + inbound, "127.0.0.1:9443": "127.0.0.1:" + inbound,
		"127.0.0.1:9080": strings.Replace(s.Instead["http: 9080"], "http: ", "127.0.0.1:", 1),
	})
	s.Ends["curl -sS http://127.0.0.1:9443/"] = []int{52, 56} // an empty reply, or a reset
	status := http.StatusOK
	ready := func(step pagetest.Step) error {
		switch {
		case strings.HasPrefix(step.Command, "sed"):
			status = http.StatusForbidden
		case strings.Contains(step.Command, "9443/"):
			conn, err := net.Dial("tcp", "127.0.0.1:"+inbound) //nolint:noctx // of this machine
			if err == nil {
				err = conn.Close()
			}
			return err
		case strings.HasPrefix(step.Command, "curl"): // a person is slower than Envoys
			return answeredWith(t, service, "web.example", status)()
		}
		return nil
	}
	s.Before = func(step pagetest.Step) {
		require.EventuallyWithT(t, func(c *assert.CollectT) { assert.NoError(c, ready(step)) }, 20*time.Second, 10*time.Millisecond, step.Command)
	}
	return prepare
}

// consoles has the environment of each other block.
var consoles = map[string]func(*testing.T, *pagetest.Sandbox){
	"docs/verify.md#does-istiod-really-have-it":   behindAGate,
	"docs/verify.md#does-an-envoy-really-have-it": rejecting,
	"docs/commands.md#tributary-verify": func(t *testing.T, s *pagetest.Sandbox) {
		dir := t.TempDir()
		write(t, dir, "echo.yaml", echoService(fixture.FreePort(t), 1, 2))
		tributary := fixture.StartTributary(t, fixture.Files("rules", dir))
		istiod := tributary.StartIstiod(t)
		envoy := fixture.StartEnvoyWith(t, bootstrap(t, "envoy", "--server", tributary.XDS))
		asks(s, tributary)
		s.Instead["istiod.example:8080"], s.Instead["127.0.0.1:8080"] = istiod.HTTP, istiod.HTTP
		// TestSecureIstiod runs this form on an istiod with its own authority.
		s.Instead["xds://istiod.example:15012 --istiod-tls-ca root-cert.pem --istiod-token-file token"] = "http://" + istiod.HTTP
		s.Instead["http://127.0.0.1:9901"] = strings.TrimSuffix(envoy.URL(""), "/")
	},
	"docs/commands.md#tributary-doctor": func(t *testing.T, s *pagetest.Sandbox) {
		rules := t.TempDir()
		write(t, rules, "a.yaml", serviceEntry("a", 80))
		tributary := fixture.StartTributary(t, fixture.Files("rules", rules))
		mesh := bootstrap(t, "istiod", "--server", tributary.XDS, "--kubernetes=false")
		istiod := fixture.NewIstiodWith(t, mesh)
		istiod.AwaitSynced(t)
		s.Instead["istiod.example:8080"] = istiod.HTTP
		config := fmt.Sprintf("listen: {xds: '%s', admin: '%s'}\nconfigSources: [{name: rules, address: 'fs://%s'}]\n", tributary.XDS,
			tributary.Admin, rules)
		write(t, s.Dir, "tributary.yaml", config)
		write(t, s.Dir+"/etc/tributary", "tributary.yaml", config)
		write(t, s.Dir, "mesh.yaml", mesh)
		s.Ends["tributary doctor --mesh-config"] = []int{0, 3} // strict about the capabilities of this machine, too
		s.Instead["--through mesh.example:16010"] = "--through " + tributary.XDS + " --idle 1s"
	},
	"docs/commands.md#tributary-get": func(t *testing.T, s *pagetest.Sandbox) {
		rules := t.TempDir()
		write(t, rules, "a.yaml", serviceEntry("reviews", 80)+"---\n"+serviceEntry("ratings", 80)+"---\n"+
			virtualService("reviews", "reviews.example"))
		k := startKV(t, fixture.ConsulOptions{})
		tributary := fixture.StartTributary(t, fixture.Files("rules", rules))
		tributary.Await(t, func() error {
			if out, _ := fixture.Run(t, fixture.TributaryBinary(t), "get", "se", "-A", "--at", "0s", "--admin",
				tributary.Admin); !strings.Contains(out, "ratings") {
				return errors.New("the history is still empty")
			}
			return nil
		})
		istiod := tributary.StartIstiod(t)
		asks(s, tributary)
		s.Instead["istiod.example:15012 --tls-ca ca.pem --token-file token"] = istiod.GRPC
		s.Instead["istiod.example:15010"], s.Instead["127.0.0.1:8500"] = istiod.GRPC, k.consul.HTTP
		s.Instead["--at 1h"] = "--at 0s"
	},
	"docs/commands.md#tributary-apply": func(t *testing.T, s *pagetest.Sandbox) {
		stores(t, s)
		write(t, s.Dir+"/rules", "reviews.yaml", strings.Replace(virtualService("reviews", "reviews.mesh.internal"), "internal}}]",
			"internal, subset: v1}}]", 1))
	},
	"docs/commands.md#tributary-edit": func(t *testing.T, s *pagetest.Sandbox) {
		out, code := stores(t, s).apply(t, virtualService("reviews", "v1.mesh.internal"))
		require.Zero(t, code, out)
	},
	"docs/commands.md#tributary-delete": func(t *testing.T, s *pagetest.Sandbox) {
		out, code := stores(t, s).apply(t, virtualService("reviews", "v1.mesh.internal"))
		require.Zero(t, code, out)
	},
	"sources/consulkv/README.md#rules-in-consuls-key-value-store": func(t *testing.T, s *pagetest.Sandbox) { stores(t, s) },
}

// stores is a Consul to keep rules in, some rules, and an editor.
func stores(t *testing.T, s *pagetest.Sandbox) *kv {
	t.Helper()
	k := startKV(t, fixture.ConsulOptions{})
	s.Instead["127.0.0.1:8500"] = k.consul.HTTP
	require.NoError(t, os.Mkdir(s.Dir+"/rules", 0o750))
	write(t, s.Dir+"/rules", "reviews.yaml", virtualService("reviews", "v1.mesh.internal"))
	s.Programs["nano"] = `exec sed -i s/v1.mesh/v3.mesh/ "$1"`
	return k
}

// asks has the commands of the sandbox ask a server, whatever it is called.
func asks(s *pagetest.Sandbox, tributary *fixture.Tributary) {
	s.Env = append(s.Env, "TRIBUTARY_SERVER="+tributary.XDS, "TRIBUTARY_ADMIN="+tributary.Admin)
	for _, host := range []string{"127.0.0.1", "mesh-1.example"} {
		s.Instead[host+":16010"], s.Instead[host+":16014"] = tributary.XDS, tributary.Admin
	}
}

// behindAGate is a real istiod that has dropped one object, and was not told of a change of another one.
func behindAGate(t *testing.T, s *pagetest.Sandbox) {
	dir := t.TempDir()
	for i := range 13 {
		name := fmt.Sprint("right-", i)
		write(t, dir, name+".yaml", serviceEntry(name, 80))
	}
	write(t, dir, "a.yaml", serviceEntry("a", 80))
	tributary := fixture.StartTributary(t, fixture.Files("rules", dir).With("validation", "warn"))
	gate := fixture.StartGate(t, tributary.XDS)
	istiod := fixture.StartIstiod(t, "xds://"+gate.Addr)
	istiod.AwaitFolders(t, dir)
	write(t, dir, "odd.yaml", serviceEntry("odd", 80000))
	write(t, dir, "last.yaml", serviceEntry("last", 80))
	istiod.Await(t, func() error {
		configs, err := istiod.Configs(t.Context())
		if _, exists := configs[fixture.Key{Kind: "ServiceEntry", Namespace: "shop", Name: "last"}]; err == nil && !exists {
			err = errors.New("istiod does not have the object yet")
		}
		return err
	})
	gate.Shut()
	write(t, dir, "a.yaml", serviceEntry("a", 81))
	tributary.Await(t, pageNames(t, tributary, "/debug/configz", `"number": 81`))
	asks(s, tributary)
	s.Instead["istiod.example:8080"] = istiod.HTTP
	s.Ends["tributary verify"] = []int{3}
}

// rejecting is a real Envoy on a machine where a port of a listener is taken, and that did not get a change of a route.
func rejecting(t *testing.T, s *pagetest.Sandbox) {
	backendOne, backendTwo, taken, port := backend(t, "one"), backend(t, "two"), backend(t, "somebody else"), fixture.FreePort(t)
	mesh := startMesh(t, "echo.yaml", echoService(port, backendOne, backendTwo))
	mesh.write(t, "taken.yaml", plain(taken, backendOne))
	mesh.write(t, "route.yaml", echoRoute("one"))
	gate := fixture.StartGate(t, mesh.XDS)
	envoy := fixture.StartEnvoyWith(t, bootstrap(t, "envoy", "--server", gate.Addr))
	mesh.Await(t, func() error {
		findings, reasons := findingsOf(t, mesh.Tributary, envoy.URL(""), "--settle", "0s")
		if len(findings) != 1 || !strings.HasPrefix(findings[0], "rejected Listener") {
			return errors.New(strings.Join(append(findings, reasons...), "\n"))
		}
		return nil
	})
	gate.Shut()
	mesh.write(t, "route.yaml", echoRoute("two"))
	mesh.Await(t, pageNames(t, mesh.Tributary, "/debug/configz", `"subset": "two"`))
	asks(s, mesh.Tributary)
	s.Instead["http://127.0.0.1:9901"] = strings.TrimSuffix(envoy.URL(""), "/")
	s.Instead["RouteConfiguration 8080"] = fmt.Sprintf("RouteConfiguration %d", port)
	s.Instead["127.0.0.1_9000"], s.Instead["127.0.0.1:9000"] = fmt.Sprintf("127.0.0.1_%d", taken), fmt.Sprintf("127.0.0.1:%d", taken)
	s.Ends["tributary verify"] = []int{3}
}
