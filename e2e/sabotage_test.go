package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"tributary/e2e/fixture"
	"tributary/internal/spiffe/spiffetest"
	"tributary/internal/testutil"
)

const otherID = "spiffe://" + fixture.SPIREDomain + "/ns/other/sa/other"

// sabotagedMesh is a workload with connections redirected to its Envoy, and a gateway, with a provider for CUSTOM and
// with tokens.
const sabotagedMesh = `apiVersion: core/v1alpha1
kind: MeshConfig
metadata: {name: istio}
spec:
  trustDomain: %[1]s
  extensionProviders: [{name: asked, envoyExtAuthzGrpc: {service: asked.mesh.internal, port: 9000, timeout: 1s}}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: echo, namespace: default}
spec:
  hosts: [echo.mesh.internal]
  location: MESH_INTERNAL
  resolution: STATIC
  ports:
  - {number: %[2]d, name: http, protocol: HTTP, targetPort: %[3]d}
  - {number: %[9]d, name: tcp, protocol: TCP, targetPort: %[10]d}
  endpoints: [{address: %[4]s, serviceAccount: echo, labels: {security.istio.io/tlsMode: istio}}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: echo, namespace: default}
spec: {host: echo.mesh.internal, trafficPolicy: {connectionPool: {http: {maxRequestsPerConnection: 1}}}}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: behind, namespace: default}
spec:
  hosts: [behind.mesh.internal]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: 127.0.0.1, ports: {http: %[5]d}}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: asked, namespace: default}
spec:
  hosts: [asked.mesh.internal]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 9000, name: grpc, protocol: GRPC}]
  endpoints: [{address: 127.0.0.1, ports: {grpc: %[6]d}}]
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: front, namespace: default}
spec:
  selector: {istio: ingressgateway}
  servers: [{port: {number: %[7]d, name: http, protocol: HTTP}, hosts: ["*"]}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: front, namespace: default}
spec: {hosts: ["*"], gateways: [front], http: [{route: [{destination: {host: behind.mesh.internal}}]}]}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: strict, namespace: default}
spec: {mtls: {mode: STRICT}}
---
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: tokens, namespace: default}
spec: {jwtRules: [{issuer: i, jwks: '%[8]s'}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: asked, namespace: default}
spec: {action: CUSTOM, provider: {name: asked}, rules: [{to: [{operation: {paths: [/asked]}}]}]}
`

// menu has the possible policies of a target; the first is none, and the last ones are for a workload only.
func menu() []rules {
	return []rules{
		{"no policy", "", func(question) bool { return true }, false},
		{"ALLOW all", "rules: [{}]", func(question) bool { return true }, false},
		{"ALLOW nothing", "action: ALLOW", func(question) bool { return false }, false},
		{"DENY a path", "action: DENY, rules: [{to: [{operation: {paths: [/a]}}]}]", func(q question) bool { return q.path != "/a" }, true},
		{"ALLOW paths", "rules: [{to: [{operation: {paths: [/b, /asked]}}]}]", func(q question) bool { return q.path != "/a" }, true},
		{"ALLOW an address", "rules: [{from: [{source: {ipBlocks: [10.9.8.20, 127.0.0.2]}}]}]", func(q question) bool {
			return q.source == "10.9.8.20" || q.source == "127.0.0.2"
		}, false},
		{"DENY other addresses", "action: DENY, rules: [{from: [{source: {notIpBlocks: [10.9.8.20/32, 127.0.0.2/32]}}]}]", func(q question) bool {
			return q.source == "10.9.8.20" || q.source == "127.0.0.2"
		}, false},
		{"ALLOW a claim", `rules: [{when: [{key: "request.auth.claims[team]", values: [red]}]}]`, func(q question) bool {
			return q.token == "red"
		}, true},
		{
			"DENY without a token", `action: DENY, rules: [{from: [{source: {notRequestPrincipals: ["*"]}}], to: [{operation: {paths: [/b]}}]}]`,
			func(q question) bool { return q.path != "/b" || q.token == "red" }, true,
		},

		{"DENY a principal", "action: DENY, rules: [{from: [{source: {principals: [" + callerID[9:] + "]}}]}]", func(q question) bool {
			return q.account != "caller"
		}, false},
		{"ALLOW a principal", "rules: [{from: [{source: {principals: [" + callerID[9:] + "]}}]}]", func(q question) bool {
			return q.account == "caller"
		}, false},
		{"ALLOW a namespace", "rules: [{from: [{source: {namespaces: [other]}}]}]", func(q question) bool { return q.account == "other" }, false},
		{"DENY other namespaces", "action: DENY, rules: [{from: [{source: {notNamespaces: [default]}}]}]", func(q question) bool {
			return q.account != "other"
		}, false},
	}
}

// workloadOnly is how many of the menu need to know the client.
const workloadOnly = 4

var neverValid = rules{name: "a policy that was never valid"}

// saboteur changes and breaks one part after the other, and knows the expected state.
type saboteur struct {
	t *testing.T
	*storm
	*policyOracle
	asker
	mesh             *mesh
	spire            *fixture.SPIRE
	envoys           []*fixture.Envoy          // with identities
	clientIdentities []*workloadapi.X509Source // identities of the clients of this process
	probing          map[string][]*asking
	startProvider    func() (stop func())
	stop             func() // the provider, while it is up

	files   map[string]string // of the mesh
	valid   map[string]rules  // last, by target
	invalid map[string]bool   // the file of the target is not valid
	never   bool              // there is a policy that was never valid
	lost    bool              // tributary may have lost the last valid version
}

// Policies, tributary, its files and its state, SPIRE's agent and its authorities, identities and the provider of
// CUSTOM change, break and come back at random, while clients with and without identities send requests to a workload
// with redirected connections, and to a gateway. No forbidden request passes, and no allowed request fails.
// E2E_NIGHTLY=1 runs it for longer and at random; E2E_SEED repeats a run.
func TestSabotagedSecurity(t *testing.T) {
	if os.Getenv("E2E_INTERCEPTED") == "" {
		t.Parallel()
		inNetworkOfItsOwn(t)
		return
	}
	s, clients := startSabotage(t)
	s.expect()
	began := time.Now()
	halt := sync.OnceFunc(s.startRequests(s.policyOracle, s.Uint64(), clients))
	t.Cleanup(halt)
	s.over(t, s, 30*time.Second, time.Second)
	halt()
	v := s.judge(map[string]time.Duration{"echo": 0, "front": gatewayDrains + time.Second})
	t.Logf("%d answers in %v: %d passed, %d were denied and %d came on kept connections; %d versions", v.total,
		time.Since(began).Round(time.Second), v.passed, v.denied, v.reused, len(s.versions["echo"])+len(s.versions["front"]))
	for failure, wrong := range map[string][]string{"passed that may not": v.passedWrongly, "failed that may pass": v.failed} {
		if len(wrong) > 0 {
			t.Errorf("%d requests %s:\n%s", len(wrong), failure, strings.Join(wrong[:min(5, len(wrong))], "\n"))
		}
	}
	require.Positive(t, v.passed)
	require.Positive(t, v.denied)
	require.Positive(t, v.reused)
	for _, e := range s.envoys {
		s.mesh.Ask(t, "verify", "--envoy", e.URL(""))
	}
	s.mesh.rejectedNothing(t)
}

// gatewayDrains is for how long the gateway keeps open connections with old policies.
const gatewayDrains = 2 * time.Second

func startSabotage(t *testing.T) (*saboteur, []asking) {
	t.Helper()
	redirectInbound(t)
	for _, address := range []string{"10.9.8.20/32", "10.9.8.21/32"} {
		ip(t, "addr add "+address+" dev lo")
	}
	spire := fixture.StartSPIRE(t)
	programs := [2]string{fixture.EnvoyCopy(t), fixture.EnvoyCopy(t)}
	self, err := os.Executable()
	require.NoError(t, err)
	const valid = 20 * time.Second
	spire.Register(t, echoID, programs[0], valid)
	spire.Register(t, callerID, programs[1], valid)
	spire.Register(t, callerID, self, valid)
	spire.Register(t, otherID, self, valid)
	callers, asCaller := identityOf(t, spire, callerID)
	otherClients, asOther := identityOf(t, spire, otherID)

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	trusted, untrusted := newSigner(t), newSigner(t)
	s := &saboteur{
		t: t, storm: newStorm(t, byNight(15, 90)), policyOracle: newPolicyOracle(), spire: spire,
		clientIdentities: []*workloadapi.X509Source{callers, otherClients},
		asker: asker{
			red:    trusted.token(t, map[string]any{"iss": "i", "sub": "s", "team": "red"}),
			forged: untrusted.token(t, map[string]any{"iss": "i", "sub": "s", "team": "red"}),
		},
		valid: map[string]rules{}, invalid: map[string]bool{}, files: map[string]string{},
		startProvider: func() func() {
			l, err := net.Listen("tcp", address)
			require.NoError(t, err)
			server := grpc.NewServer()
			auth.RegisterAuthorizationServer(server, &authorizer{})
			var serving sync.WaitGroup
			serving.Go(func() { _ = server.Serve(l) })
			return sync.OnceFunc(func() { server.Stop(); serving.Wait() })
		},
	}
	s.stop = s.startProvider()
	t.Cleanup(func() { s.stop() })
	port, target, front, tcp := fixture.FreePort(t), program(t, "one"), fixture.FreePort(t), program(t, "tcp")
	s.files["mesh.yaml"] = fmt.Sprintf(sabotagedMesh, fixture.SPIREDomain, port, target, workloadAddress, backend(t, "one"),
		listener.Addr().(*net.TCPAddr).Port, front, trusted.jwks, fixture.FreePort(t), tcp)
	s.mesh = startMesh(t, "mesh.yaml", s.files["mesh.yaml"])
	s.valid["echo"], s.valid["front"] = menu()[0], menu()[0]
	s.settle()
	flags := func(node string, args ...string) string {
		return bootstrap(t, append([]string{"envoy", "--server", s.mesh.XDS, "--spire", spire.Socket, "--node-id", node}, args...)...)
	}
	echo := fixture.StartEnvoyCopy(t, programs[0], flags("sidecar~"+workloadAddress+"~echo.default~default.svc.cluster.local",
		"--label", "app=echo", "--interception", "REDIRECT"), "--drain-strategy", "immediate")
	caller := fixture.StartEnvoyCopy(t, programs[1], flags("sidecar~10.9.8.20~caller.clients~clients.svc.cluster.local"))
	fixture.StartGateway(t, s.mesh.XDS, "/nonexistent", "--drain-time-s", strconv.Itoa(int(gatewayDrains.Seconds())))
	s.envoys = []*fixture.Envoy{echo, caller}

	plain := strings.NewReplacer("https", "http")
	inbound, gateway := fmt.Sprintf("https://%s:%d", workloadAddress, target), "http://"+fixture.Loopback(front)
	as := func(account, source string) question {
		return question{target: "echo", account: account, source: source}
	}
	atGateway := func(source string) question { return question{target: "front", source: source} }
	foreign := spiffetest.Sign(testutil.NewAuthority(t), callerID, time.Time{}).TLS()
	stranger := func(certificates ...tls.Certificate) *tls.Config {
		c := &tls.Config{NextProtos: []string{"istio-http/1.1"}, Certificates: certificates}
		c.InsecureSkipVerify = true
		return c
	}
	overTCP := func(account, source string, c *tls.Config) asking {
		c = c.Clone()
		c.NextProtos = []string{"istio"}
		as := question{target: "echo", account: account, source: source, tcp: true}
		return asking{url: fmt.Sprintf("https://%s:%d", workloadAddress, tcp), as: as, tls: c}
	}
	s.probing = map[string][]*asking{
		"echo": {
			overTCP("caller", "10.9.8.20", asCaller).start(),
			overTCP("other", "10.9.8.21", asOther).start(),
			asking{url: inbound, as: as("caller", "10.9.8.20"), tls: asCaller}.start(),
			asking{url: inbound, as: as("other", "10.9.8.21"), tls: asOther}.start(),
		},
		"front": {asking{url: gateway, as: atGateway("127.0.0.1")}.start(), asking{url: gateway, as: atGateway("127.0.0.2")}.start()},
	}
	return s, []asking{
		{url: inbound, as: as("caller", "10.9.8.20"), tls: asCaller, keep: true},
		{url: inbound, as: as("caller", "10.9.8.21"), tls: asCaller},
		{url: inbound, as: as("other", "10.9.8.20"), tls: asOther},
		{url: inbound, as: as("other", "10.9.8.21"), tls: asOther, keep: true},
		{url: "http://" + fixture.Loopback(port), as: question{target: "echo", account: "caller"}, keep: true, through: true},
		overTCP("caller", "10.9.8.21", asCaller),
		overTCP("other", "10.9.8.20", asOther),
		{url: plain.Replace(inbound), as: as("", "10.9.8.20"), forbidden: true},
		{url: inbound, as: as("", "10.9.8.20"), tls: stranger(), forbidden: true},
		{url: inbound, as: as("", "10.9.8.20"), tls: stranger(foreign), forbidden: true},
		{url: gateway, as: atGateway("127.0.0.1"), keep: true},
		{url: gateway, as: atGateway("127.0.0.1")},
		{url: gateway, as: atGateway("127.0.0.2"), keep: true},
		{url: gateway, as: atGateway("127.0.0.2")},
	}
}

// settle gives the oracle the rules that are to be in force from now on.
func (s *saboteur) settle() {
	for _, target := range []string{"echo", "front"} {
		right := []rules{s.valid[target]}
		switch {
		case s.never:
			right = []rules{neverValid}
		case s.lost:
			right = append(right, neverValid)
		}
		if versions := s.versions[target]; len(versions) == 0 || !slices.EqualFunc(versions[len(versions)-1].any, right, rules.equal) {
			s.change(target, right...)
		}
	}
}

// Deed implements peer.
func (s *saboteur) Deed() string {
	deeds := s.deeds()
	name := draw(s.storm, deeds)
	s.t.Log(name)
	deeds[name]()
	return name
}

// Truth implements peer: new connections show the rules in force.
func (s *saboteur) Truth() error {
	for target, clients := range s.probing {
		for _, c := range clients {
			for _, q := range s.probes(c.as) {
				var right []int
				for _, r := range s.now(target) {
					right = append(right, expected(q, r, s.providerUp())...)
				}
				if a := c.ask(s.t.Context(), q, s.headers(q)); !slices.Contains(right, a.status) {
					return fmt.Errorf("%+v: %d %w, want one of %v", q, a.status, errors.Join(a.err), right)
				}
			}
		}
	}
	return nil
}

// Lost implements peer: the requests are judged at the end.
func (s *saboteur) Lost(context.Context) error { return nil }

// Rest implements peer.
func (s *saboteur) Rest() {
	s.acknowledge()
	s.load()
}

// expect waits until new connections show the rules in force.
func (s *saboteur) expect() {
	s.t.Helper()
	fixture.WaitFor(s.t, 30*time.Second, s.Truth)
	s.acknowledge()
}

func (s *saboteur) acknowledge() {
	questions := map[string][]question{}
	for target, clients := range s.probing {
		for _, c := range clients {
			questions[target] = append(questions[target], s.probes(c.as)...)
		}
	}
	s.ack(questions)
}

// load waits for some more answers.
func (s *saboteur) load() {
	s.t.Helper()
	if s.spire.Agent.Ended() { // as a service manager does
		s.t.Log("  SPIRE's agent had ended itself")
		s.spire.Agent.Restart(s.t)
	}
	goal := s.n.Load() + 300
	fixture.Await(s.t, func() error {
		if n := s.n.Load(); n < goal {
			return fmt.Errorf("%d of %d answers", n, goal)
		}
		return nil
	})
}

// write makes text a file of the mesh; no text is no file.
func (s *saboteur) write(name, text string) {
	s.t.Helper()
	path := filepath.Join(s.mesh.dir, name)
	if text == "" {
		delete(s.files, name)
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			require.NoError(s.t, err)
		}
		return
	}
	s.files[name] = text
	s.mesh.write(s.t, name, text)
}

// policyOf is the text of a policy of a target.
func policyOf(target, spec string) string {
	selector := map[string]string{"echo": "app: echo", "front": "istio: ingressgateway"}[target]
	return policy("of-"+target, "{selector: {matchLabels: {"+selector+"}}, "+spec+"}")
}

const nonsense = "action: DENY, rules: [{when: [{key: nonsense, values: [a]}]}]"

// decide gives a target another policy, or none.
func (s *saboteur) decide(target string) {
	s.t.Helper()
	s.choose(target, 0)
}

// choose gives a target another policy of the menu.
func (s *saboteur) choose(target string, from int) {
	s.t.Helper()
	choices := menu()[from:]
	if target == "front" {
		choices = choices[:len(choices)-workloadOnly]
	}
	r := choices[s.IntN(len(choices))]
	s.t.Logf("  %s: %s", target, r.name)
	s.valid[target], s.invalid[target] = r, false
	s.lost = s.lost && (s.invalid["echo"] || s.invalid["front"])
	s.settle()
	text := ""
	if r.spec != "" {
		text = policyOf(target, r.spec)
	}
	s.write(target+".yaml", text)
}

func (s *saboteur) either() string { return []string{"echo", "front"}[s.IntN(2)] }

// restart starts a tributary that was killed, and returns when it has read its files.
func (s *saboteur) restart() {
	s.t.Helper()
	s.mesh.Restart(s.t)
	s.mesh.Await(s.t, func() error {
		status, body, err := fixture.Get(s.t.Context(), s.mesh.URL("/metrics"))
		if err == nil && (status != http.StatusOK || !strings.Contains(body, `tributary_source_stale{source="mesh"} 0`)) {
			err = errors.New("the files are not read yet")
		}
		return err
	})
}

// damage breaks the saved state of tributary. Until it has read its files again, it may serve earlier versions.
func (s *saboteur) damage() {
	s.t.Helper()
	s.lost = s.invalid["echo"] || s.invalid["front"]
	for target, versions := range s.versions {
		before := []rules{neverValid}
		for _, v := range versions {
			for _, r := range v.any {
				if !slices.ContainsFunc(before, r.equal) {
					before = append(before, r)
				}
			}
		}
		s.change(target, before...)
	}
	require.NoError(s.t, filepath.WalkDir(s.mesh.State, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path) //nolint:gosec // of ours
		if err != nil || len(text) == 0 {
			return err
		}
		switch s.IntN(4) {
		case 0:
			return os.Remove(path)
		case 1:
			text = text[:s.IntN(len(text))]
		default:
			for range 1 + len(text)/200 {
				text[s.IntN(len(text))] = byte(s.IntN(256))
			}
		}
		return os.WriteFile(path, text, 0o600)
	}))
}
