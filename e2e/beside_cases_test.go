package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/ext_authz/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"tributary/e2e/fixture"
)

// besideCase is a mesh for which Envoys get the same resources from tributary as from an istiod that reads its
// configuration from tributary.
type besideCase struct {
	folder, text string // of objects
	config       string // the MeshConfig of istiod, in JSON; that of tributary is an object
	versions     []fixture.IstiodVersion
	nodes        func(*testing.T) map[string]*core.Node
	lines        func(*testing.T, besidePair) []string // of unexplained differences
}

// besidePair has the resources of a client.
type besidePair struct {
	version      fixture.IstiodVersion
	node         string
	theirs, ours *fixture.Inventory
}

// usual describes the pair. Nodes without redirection have names that begin with NONE.
func (p besidePair) usual() compared {
	return compared{gateway: p.node == "gateway", plain: strings.HasPrefix(p.node, "NONE")}
}

func (p besidePair) lines(t *testing.T, c compared) []string { return compare(t, p.theirs, p.ours, c) }

func besideCases(t *testing.T) map[string]besideCase {
	t.Helper()
	text := func(name string) string {
		content, err := os.ReadFile(filepath.Join("testdata/beside", name))
		require.NoError(t, err)
		return string(content)
	}
	meshConfig := func(spec string) string {
		return "---\napiVersion: core/v1alpha1\nkind: MeshConfig\nmetadata: {name: istio, namespace: istio-system}\nspec: " + spec + "\n"
	}
	const local = `{"inboundTrafficPolicy": {"mode": "LOCALHOST"}}`
	cases := map[string]besideCase{
		"quickstart": {folder: fixture.Testdata("quickstart")},
		// Delegates, wildcards, hosts of several widths at a gateway, hosts without routes there, invisible hosts.
		"corners": {folder: "testdata/corners"},
		// Several VirtualServices of one host, and those bound to several Gateways that share a port.
		"shared hosts": {folder: "testdata/several"},
		// Each kind of change by EnvoyFilters.
		"EnvoyFilters": {folder: "testdata/filters"},
		// Shapes of services that people reported: one file each.
		"shapes": {folder: "testdata/shapes", versions: fixture.IstiodVersions, lines: shapeLines},
		// Inbound listeners follow the ports of the workload's services, or the ingress of a Sidecar instead.
		"inbound, services":               {},
		"inbound, a Sidecar":              {text: text("ingress.yaml")},
		"inbound, the loopback interface": {text: meshConfig(local), config: local},
	}
	for name, c := range cases {
		if strings.HasPrefix(name, "inbound") {
			c.folder, c.nodes, c.lines = "testdata/inbound", inboundNodes, inboundLines
			cases[name] = c
		}
	}
	// A gateway gets the same policies, tokens, providers and claims.
	s := newSigner(t)
	for _, provider := range []string{"grpc", "http", "nobody"} {
		config := text("security-config.json")
		cases["security, "+provider] = besideCase{
			text: fmt.Sprintf(text("security.yaml"), provider, s.jwks) + meshConfig(config), config: config,
			nodes: besideGateway, lines: securityLines,
		}
	}
	for name, config := range map[string]string{
		"one domain":      `{"enableAutoMtls": true, "trustDomain": "example.org"}`,
		"several domains": `{"enableAutoMtls": true, "trustDomain": "example.org", "trustDomainAliases": ["old.example", "older.example"]}`,
		"no auto":         `{"enableAutoMtls": false, "trustDomain": "example.org"}`,
	} {
		cases["identities, "+name] = besideCase{
			text: text("identities.yaml") + meshConfig(config), config: config, nodes: identityNodes,
			lines: func(t *testing.T, p besidePair) []string { identities(t, p, name != "no auto"); return nil },
		}
	}
	return cases
}

func TestBesideIstiod(t *testing.T) {
	t.Parallel()
	for name, c := range besideCases(t) {
		for _, version := range append(c.versions, fixture.Istiod127)[:max(1, len(c.versions))] {
			t.Run(name+"/"+string(version), func(t *testing.T) {
				t.Parallel()
				c.run(t, version)
			})
		}
	}
}

func (c besideCase) run(t *testing.T, version fixture.IstiodVersion) {
	dir := t.TempDir()
	write(t, dir, "mesh.yaml", c.text)
	sources := []fixture.ConfigSource{fixture.Files("more", dir)}
	if c.folder != "" {
		sources = append(sources, fixture.Files("files", absolute(t, c.folder)))
	}
	tr := fixture.StartTributary(t, sources...)
	tr.AwaitReady(t)
	istiod := istiodBeside(t, tr, version, c.config)
	nodes, lines := besideNodes, func(t *testing.T, p besidePair) []string { return p.lines(t, p.usual()) }
	if c.nodes != nil {
		nodes = c.nodes
	}
	if c.lines != nil {
		lines = c.lines
	}
	for name, node := range nodes(t) {
		reportLines(t, name, 3*time.Second, func() []string {
			return lines(t, besidePair{version, name, fixture.TakeInventory(t, istiod.GRPC, node), fixture.TakeInventory(t, tr.XDS, node)})
		})
	}
}

// reportLines fails the test with differences that stay: istiod takes one object after another.
func reportLines(t *testing.T, step string, patience time.Duration, lines func() []string) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		found := lines()
		if len(found) > 0 && time.Now().Before(end) {
			continue
		}
		for _, line := range found {
			t.Errorf("%s: %s", step, line)
		}
		return
	}
}

// istiodBeside starts an istiod with a MeshConfig, which it cannot read from tributary. Fields that it leaves out get
// tributary's defaults.
func istiodBeside(t *testing.T, tr *fixture.Tributary, version fixture.IstiodVersion, config string) *fixture.Istiod {
	t.Helper()
	fields := map[string]any{"enableTracing": false}
	if config != "" {
		require.NoError(t, json.Unmarshal([]byte(config), &fields))
	}
	text, err := yaml.Marshal(fields)
	require.NoError(t, err)
	istiod := version.NewWith(t, fmt.Sprintf("%sconfigSources:\n- address: %q\n", text, "xds://"+tr.XDS))
	istiod.AwaitSynced(t)
	return istiod
}

// newer matches the lines that every mesh has beside istiod 1.31: its defaults changed, and it has the Service of the
// API server. It also keeps the client's protocol on a detected port with h2UpgradePolicy.
var newer = regexp.MustCompile(`\.(track_remaining: tributary has|common_lb_config\.healthy_panic_threshold: istiod has set|` +
	`max_connections_to_accept_per_socket_event: istiod has set)|kubernetes\.default\.svc|_443: istiod has it$|` +
	`\.fields\{workload\}\.string_value: |^cluster outbound\|9007\|\|pooled\.example\.typed_extension_protocol_options`)

func shapeLines(t *testing.T, p besidePair) []string {
	c := p.usual()
	c.shapes = true
	return slices.DeleteFunc(p.lines(t, c), func(line string) bool { return p.version == fixture.Istiod131 && newer.MatchString(line) })
}

func besideGateway(t *testing.T) map[string]*core.Node {
	t.Helper()
	return map[string]*core.Node{"gateway": besideNodes(t)["gateway"]}
}

func securityLines(t *testing.T, p besidePair) []string {
	require.Len(t, p.ours.Listeners, 2)
	return slices.DeleteFunc(p.lines(t, p.usual()), func(line string) bool {
		return strings.Contains(line, "istio-ext-authz") // istiod 1.31 adds the name of the provider, see TestGoldens
	})
}

func inboundNodes(t *testing.T) map[string]*core.Node {
	t.Helper()
	nodes := make(map[string]*core.Node)
	for _, interception := range []string{"NONE", "REDIRECT", "TPROXY"} {
		for _, address := range []string{"10.9.8.7", "10.9.8.9", "10.9.8.10", "10.9.8.11"} {
			node := besideNode(t, interception)
			node.Id = "sidecar~" + address + "~vm1.shop~shop.svc.cluster.local"
			nodes[interception+" at "+address] = node
		}
	}
	return nodes
}

// inboundLines compares the resources that are for connections to the workload.
func inboundLines(t *testing.T, p besidePair) []string {
	for _, i := range []*fixture.Inventory{p.theirs, p.ours} {
		maps.DeleteFunc(i.Clusters, func(name string, _ *cluster.Cluster) bool {
			return !strings.HasPrefix(strings.ToLower(name), "inbound")
		})
		maps.DeleteFunc(i.Listeners, func(_ string, l *listener.Listener) bool {
			return l.GetTrafficDirection() != core.TrafficDirection_INBOUND
		})
		i.Endpoints, i.Routes = nil, nil
	}
	require.Equal(t, !p.usual().plain, p.theirs.Listeners["virtualInbound"] != nil)
	return p.lines(t, p.usual())
}

func identityNodes(t *testing.T) map[string]*core.Node {
	t.Helper()
	nodes := besideNodes(t)
	for _, node := range nodes {
		node.Metadata.Fields["IDENTITY"] = structpb.NewStringValue("spire")
	}
	return nodes
}

// identities compares the mutual TLS of Envoys with an identity. It equals istiod's, except for the origin of
// certificates: SPIRE's agent has another name for the roots of several trust domains. The accepted names of a
// certificate are in a newer field. TCP within TLS has no istio-peer-exchange, which stock Envoys do not speak, and no
// ALPN protocol.
func identities(t *testing.T, p besidePair, auto bool) {
	t.Helper()
	authenticated := 0
	for c, m := range p.theirs.Clusters {
		if !strings.HasPrefix(c, "outbound|") {
			continue
		}
		if len(m.GetTransportSocketMatches()) == 0 {
			m.LoadAssignment = nil // the label that endpoints match
		}
		require.Equal(t, sockets(m, false), sockets(p.ours.Clusters[c], admitsAny(m)), "%s: cluster %s", p.node, c)
		if len(m.GetTransportSocketMatches()) > 0 {
			authenticated++
			require.Equal(t, sockets(p.theirs.Endpoints[c], false), sockets(p.ours.Endpoints[c], false), "%s: endpoints %s", p.node, c)
		}
	}
	require.Equal(t, auto, authenticated > 4, "%s: %d clusters", p.node, authenticated)
	if p.node != "gateway" {
		return
	}
	require.Len(t, p.ours.Listeners, 2)
	for l, m := range p.ours.Listeners {
		require.Equal(t, sockets(p.theirs.Listeners[l], false), sockets(m, admitsAny(p.theirs.Listeners[l])), "listener %s", l)
	}
}

var subjectName = regexp.MustCompile(`match_(typed_)?subject_alt_names\{[0-9]+\}\..*(exact|prefix)$`)

// admitsAny says whether certificates may have any name.
func admitsAny(m proto.Message) bool {
	for path := range fixture.Flatten(m) {
		if subjectName.MatchString(path) {
			return false
		}
	}
	return true
}

// sockets returns the transport sockets of a message, by the paths of their fields. If any name would do, trust domains
// are left out.
func sockets(m proto.Message, anyName bool) map[string]string {
	fields := make(map[string]string)
	for path, v := range fixture.Flatten(m) {
		switch {
		case !strings.Contains(path, "transport_socket"), strings.Contains(path, ".sds_config"),
			strings.HasSuffix(path, "connect_timeout.seconds"):
		case strings.HasSuffix(path, "validation_context_sds_secret_config.name"):
			fields[path] = "roots"
		case subjectName.MatchString(path) && anyName && strings.HasSuffix(path, "prefix"):
		case subjectName.MatchString(path):
			fields[subjectName.ReplaceAllString(path, "name ")+v] = ""
		case strings.Contains(path, "subject_alt_names"), strings.Contains(path, "DownstreamTlsContext") && strings.Contains(v, "peer-exchange"):
		default:
			fields[path] = v
		}
	}
	return fields
}
