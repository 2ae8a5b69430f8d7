package e2e

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
	telemetry "istio.io/api/telemetry/v1alpha1"
	jsonyaml "sigs.k8s.io/yaml"
)

// grammar makes random texts by the rules of a file: see testdata/beside/random.txt.
type grammar struct {
	*rand.Rand
	rules map[string]string
}

func readGrammar(t *testing.T, file string, seed uint64) grammar {
	t.Helper()
	g := grammar{rand.New(rand.NewPCG(seed, 1)), make(map[string]string)} //nolint:gosec // a test's
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if name, rule, isRule := strings.Cut(strings.TrimSpace(line), " = "); isRule && line[0] != '#' {
			g.rules[name] = rule
		}
	}
	return g
}

// text replaces the groups of a text.
func (g grammar) text(s string) string {
	var out strings.Builder
	for _, part := range outerParts(s, '<') {
		if strings.HasPrefix(part, "<") {
			out.WriteString(g.group(part[1 : len(part)-1]))
		} else {
			out.WriteString(strings.ReplaceAll(part, `\>`, ">"))
		}
	}
	return out.String()
}

var repeated = regexp.MustCompile(`(?s)^(\d+)([?!*+])(.*)$`)

func (g grammar) group(s string) string {
	if name, isRule := strings.CutPrefix(s, "@"); isRule {
		name, argument, _ := strings.Cut(name, " ")
		rule, exists := g.rules[name]
		if !exists {
			panic("no rule " + name)
		}
		if argument != "" {
			rule = strings.ReplaceAll(rule, "$", argument)
		}
		return g.text(rule)
	}
	m := repeated.FindStringSubmatch(s)
	if m == nil {
		choices := outerParts(s, '|')
		return g.text(choices[g.IntN(len(choices))])
	}
	n, _ := strconv.Atoi(m[1])
	n = g.IntN(n)
	times := map[string]int{"?": max(0, 1-n), "!": min(n, 1), "*": n, "+": n + 1}[m[2]]
	var out strings.Builder
	for range times {
		out.WriteString(g.text(m[3]))
	}
	return out.String()
}

// outerParts divides a text at separators outside groups, or into outer groups and the texts between them.
func outerParts(s string, separator rune) (parts []string) {
	depth, from := 0, 0
	cut := func(to, next int) { parts, from = append(parts, s[from:to]), next }
	for i, c := range s {
		switch {
		case c == '<':
			if depth++; depth == 1 && separator == '<' {
				cut(i, i)
			}
		case c == '>' && s[i-1] != '\\':
			if depth--; depth == 0 && separator == '<' {
				cut(i+1, i+1)
			}
		case c == separator && depth == 0:
			cut(i, i+1)
		}
	}
	cut(len(s), len(s))
	return parts
}

// randomMesh has random objects of translated kinds. Their few names make them refer to each other.
type randomMesh struct {
	grammar
	objects  strings.Builder
	taken    map[string]bool // istiod's resources for a host that occurs twice in one namespace follow no rule: see docs/fields.md
	shared   []string        // hosts that both namespaces have
	split    []string        // these, if there are Sidecars
	config   string          // the MeshConfig, in JSON
	ranged   bool            // there are services with ranges of addresses
	balanced bool            // a policy of a port has a load balancer
	derived  []string        // the hosts of routes of Gateway API
	gateways []string        // the gateways, as namespace/name
	secure   []string        // the hosts of servers that have certificates or redirect to such, with the port and without their namespaces
}

func newRandomMesh(t *testing.T, seed int) *randomMesh {
	t.Helper()
	grammar := readGrammar(t, "testdata/beside/random.txt", uint64(seed)) //nolint:gosec // it is not negative
	r := &randomMesh{grammar: grammar, taken: make(map[string]bool)}
	for i := range 3 {
		r.rules[fmt.Sprint("spoken", i)] = []string{"<HTTP|GRPC|HTTP2>", "<TLS|HTTPS>", "TCP"}[(i+r.IntN(2))%3]
	}
	return r
}

// put adds an object.
func (r *randomMesh) put(t *testing.T, kind, namespace, name, spec string) {
	t.Helper()
	body, err := jsonyaml.YAMLToJSON([]byte(spec))
	require.NoError(t, err, spec)
	m := map[string]proto.Message{
		"ServiceEntry": &networking.ServiceEntry{}, "WorkloadEntry": &networking.WorkloadEntry{}, "Sidecar": &networking.Sidecar{},
		"DestinationRule": &networking.DestinationRule{}, "VirtualService": &networking.VirtualService{}, "Gateway": &networking.Gateway{},
		"Telemetry": &telemetry.Telemetry{},
	}[kind]
	annotations := ""
	if m != nil {
		require.NoError(t, protojson.Unmarshal(body, m), spec)
		var useful bool
		if annotations, useful = r.adapt(m, namespace); !useful {
			return
		}
		body, err = protojson.Marshal(m)
		require.NoError(t, err)
	}
	groups := map[string]string{"Telemetry": "telemetry.istio.io/v1", "MeshConfig": "core/v1alpha1"}
	created := time.Unix(1_500_000_000+r.Int64N(100_000_000), 0) // of objects of one age, it is chance which one istiod takes
	labels := ""
	if kind == "WorkloadEntry" {
		labels = r.text("<4!<@labels>>")
	}
	fmt.Fprintf(&r.objects, "---\napiVersion: %s\nkind: %s\nmetadata: {name: %s, namespace: %s, labels: {%s}, annotations: {%s}, "+
		"creationTimestamp: %q}\nspec: %s\n", cmp.Or(groups[kind], "networking.istio.io/v1"), kind, name, namespace, labels, annotations,
		created.UTC().Format(time.RFC3339), body)
}

// adapt changes an object to one that istiod has rules for, and notes properties of the mesh.
func (r *randomMesh) adapt(m proto.Message, namespace string) (annotations string, useful bool) {
	switch m := m.(type) {
	case *networking.ServiceEntry:
		m.Hosts = slices.DeleteFunc(m.GetHosts(), func(host string) bool {
			repeated := r.taken[namespace+"/"+host]
			r.taken[namespace+"/"+host] = true
			return repeated
		})
		for _, host := range m.GetHosts() {
			if r.taken["shop/"+host] && r.taken["other/"+host] {
				r.shared = append(r.shared, host)
			}
		}
		r.ranged = r.ranged || slices.ContainsFunc(m.GetAddresses(), func(a string) bool { return strings.Contains(a, "/") })
		return "", len(m.GetHosts()) > 0
	case *networking.DestinationRule:
		for _, p := range append(m.GetSubsets(), &networking.Subset{TrafficPolicy: m.GetTrafficPolicy()}) {
			for _, port := range p.GetTrafficPolicy().GetPortLevelSettings() {
				r.balanced = r.balanced || port.GetLoadBalancer() != nil
			}
		}
	case *networking.Sidecar:
		r.split = r.shared
	case *networking.Gateway:
		for _, s := range m.GetServers() {
			for _, host := range s.GetHosts() {
				if n := s.GetPort().GetNumber(); s.GetTls().GetHttpsRedirect() || n == 443 {
					r.secure = append(r.secure, fmt.Sprint(n, "/", host[strings.LastIndexByte(host, '/')+1:]))
				}
			}
		}
	case *networking.VirtualService:
		if len(m.GetHosts()) == 0 {
			return "", true
		}
		if m.GetHosts()[0] == "*" {
			m.Tls = nil
		}
		for _, h := range m.GetHttp() {
			for _, match := range h.GetMatch() {
				if match.GetSourceNamespace() == "other" { // with others beside it, istiod forgets where the route leads
					h.Match = []*networking.HTTPMatchRequest{match}
				}
			}
		}
		if r.IntN(3) == 0 {
			r.derive(m)
			annotations = r.text("internal.istio.io/route-semantics: <gateway|ingress>")
			if strings.HasSuffix(annotations, "gateway") {
				r.derived = append(r.derived, m.GetHosts()...)
			}
		}
	}
	return annotations, true
}

// derive gives some routes the fields that only routes derived from Kubernetes objects have.
func (r *randomMesh) derive(v *networking.VirtualService) {
	for _, h := range v.GetHttp() {
		if h.GetRedirect() != nil && r.IntN(2) == 0 {
			h.Redirect.Uri = r.text("%PREFIX()%<|/|/new>")
			h.Redirect.RedirectPort = &networking.HTTPRedirect_DerivePort{
				DerivePort: networking.HTTPRedirect_RedirectPortSelection(r.IntN(2)), //nolint:gosec // there are two
			}
		}
		if h.GetRewrite().GetUriRegexRewrite() != nil {
			h.Rewrite = &networking.HTTPRewrite{Uri: "/"}
		}
	}
}

// texts returns a mesh with a service that marks it, and an earlier mesh: with other labels of workloads, other
// selectors of services, rules and clients, and another name of the mark.
func (r *randomMesh) texts(t *testing.T, seed int) (mark, now, before string) {
	t.Helper()
	mark = fmt.Sprintf("mark-%d.internal", seed)
	r.rules["mark"] = mark
	r.put(t, "ServiceEntry", "shop", fmt.Sprint("mark", seed), "{hosts: ["+mark+"], ports: [{number: 7777, name: tcp, protocol: TCP}], "+
		"resolution: STATIC, endpoints: [{address: 192.0.2.1}]}")
	const home = "<shop|shop|other>"
	for _, k := range []struct {
		kind, rule, prefix string
		least, most        int
		namespace          string
	}{
		{"ServiceEntry", "service", "s", 2, 6, home},
		{"WorkloadEntry", "numbered", "w", 0, 3, home},
		{"DestinationRule", "policy", "d", 0, 3, home},
		{"Gateway", "gateway", "g", 1, 2, home},
		{"VirtualService", "routes", "v", 0, 3, home},
		{"Sidecar", "sidecar", "e", 0, 2, "<shop|shop|istio-system>"},
		{"VirtualService", "bound", "gv", 1, 4, home},
		{"VirtualService", "team", "team", 1, 1, home},
		{"Telemetry", "telemetry", "t", 0, 3, "<istio-system|shop|shop|other>"},
	} {
		for i := range k.least + r.IntN(k.most-k.least+1) {
			rule := k.rule
			if rule == "bound" {
				rule += " " + r.text("<one.internal|two.internal|three.internal|a.wild.internal|*.wild.internal|*.internal|*>")
			}
			name := fmt.Sprint(k.prefix, i)
			if k.kind != "Gateway" && k.rule != "team" { // VirtualServices name those
				name += fmt.Sprint("-", seed)
			}
			namespace := r.text(k.namespace)
			r.rules["bind"] = r.bindings(namespace)
			r.put(t, k.kind, namespace, name, r.text("<@"+rule+">"))
			if k.kind == "Gateway" {
				r.gateways = append(r.gateways, namespace+"/"+name)
			}
		}
	}
	config, err := jsonyaml.YAMLToJSON([]byte(r.text("<@mesh " + r.text("<shop/|>") + mark + ">")))
	require.NoError(t, err)
	r.config = string(config)
	r.put(t, "MeshConfig", "", "istio", r.config)
	now = r.objects.String()
	before = selected.ReplaceAllStringFunc(now, func(label string) string {
		return strings.NewReplacer("one", "two", "two", "one").Replace(label)
	})
	return mark, now, strings.ReplaceAll(before, mark, "before-"+mark)
}

// bindings returns a rule: the names by which a VirtualService of a namespace may mean a gateway, and names without one.
func (r *randomMesh) bindings(namespace string) string {
	names := []string{"g0", "shop/g1"}
	for _, gateway := range r.gateways {
		home, name, _ := strings.Cut(gateway, "/")
		names = append(names, gateway, name+"."+home, name+"."+home+".svc.cluster.local")
		if home == namespace {
			names = append(names, name, name)
		}
	}
	return "<" + strings.Join(names, "|") + ">"
}

// selected matches the labels of workload selectors.
var selected = regexp.MustCompile(`app"?: ?"?(one|two)`)

// clashes says whether secure servers have one host on one port.
func (r *randomMesh) clashes() bool {
	return len(slices.Compact(slices.Sorted(slices.Values(r.secure)))) < len(r.secure)
}
