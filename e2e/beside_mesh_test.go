package e2e

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"
)

// randomMesh makes random objects of translated kinds. Their few names make them refer to each other.
type randomMesh struct {
	*rand.Rand
	spoken [3][]string // the protocols of each port
	shared []string    // hosts that both namespaces have
	split  []string    // these, if there are Sidecars
	config string      // the MeshConfig, in JSON
	ranged bool        // there are services with ranges of addresses
	hashed bool        // a policy of a port has the input of a hash
	secure []string    // the hosts of servers that have certificates or redirect to such, with the port and without their namespaces
}

func newRandomMesh(seed int) *randomMesh {
	r := &randomMesh{Rand: rand.New(rand.NewPCG(uint64(seed), 1))} //nolint:gosec // a test's
	for i := range r.spoken {
		r.spoken[i] = [][]string{{"HTTP", "GRPC", "HTTP2"}, {"TLS", "HTTPS"}, {"TCP"}}[(i+r.IntN(2))%3]
	}
	return r
}

func (r *randomMesh) pick(choices ...string) string { return choices[r.IntN(len(choices))] }
func (r *randomMesh) often(n int) bool              { return r.IntN(n) > 0 }
func (r *randomMesh) seldom(n int) bool             { return r.IntN(n) == 0 }

func (r *randomMesh) duration(seconds ...int) *durationpb.Duration {
	return &durationpb.Duration{Seconds: int64(seconds[r.IntN(len(seconds))])}
}

// texts returns a mesh with a service that marks it, and an earlier mesh: with other labels of workloads, other
// selectors of services, rules and clients, and another name of the mark.
func (r *randomMesh) texts(t *testing.T, seed int) (mark, now, before string) {
	t.Helper()
	var text strings.Builder
	groups := map[string]string{"Telemetry": "telemetry.istio.io/v1", "MeshConfig": "core/v1alpha1"}
	put := func(kind, namespace, name string, labels map[string]string, spec proto.Message) {
		body, err := protojson.Marshal(spec)
		require.NoError(t, err)
		var pairs []string
		for k, v := range labels {
			pairs = append(pairs, fmt.Sprintf("%s: %s", k, v))
		}
		created := time.Unix(1_500_000_000+r.Int64N(100_000_000), 0) // of objects of one age, it is chance which one istiod takes
		derived := ""
		if v, ok := spec.(*networking.VirtualService); ok && r.seldom(3) {
			derived = "internal.istio.io/route-semantics: " + r.pick("gateway", "ingress")
			r.derive(v)
			body, err = protojson.Marshal(v)
			require.NoError(t, err)
		}
		fmt.Fprintf(&text, "---\napiVersion: %s\nkind: %s\nmetadata: {name: %s, namespace: %s, labels: {%s}, annotations: {%s}, "+
			"creationTimestamp: %q}\nspec: %s\n", cmp.Or(groups[kind], "networking.istio.io/v1"), kind, name, namespace,
			strings.Join(pairs, ", "), derived, created.UTC().Format(time.RFC3339), body)
	}
	mark = fmt.Sprintf("mark-%d.internal", seed)
	put("ServiceEntry", "shop", fmt.Sprint("mark", seed), nil, &networking.ServiceEntry{
		Hosts: []string{mark}, Ports: []*networking.ServicePort{{Number: 7777, Name: "tcp", Protocol: "TCP"}},
		Resolution: networking.ServiceEntry_STATIC, Endpoints: []*networking.WorkloadEntry{{Address: "192.0.2.1"}},
	})
	namespace := func() string { return r.pick("shop", "shop", "other") }
	taken := make(map[string]bool) // istiod's resources for a host that occurs twice in one namespace follow no rule: see docs/fields.md
	for i := range 2 + r.IntN(5) {
		home, service := namespace(), r.service()
		service.Hosts = slices.DeleteFunc(service.GetHosts(), func(host string) bool {
			repeated := taken[home+"/"+host]
			taken[home+"/"+host] = true
			return repeated
		})
		for _, host := range service.GetHosts() {
			if taken["shop/"+host] && taken["other/"+host] {
				r.shared = append(r.shared, host)
			}
		}
		r.ranged = r.ranged || slices.ContainsFunc(service.GetAddresses(), func(a string) bool { return strings.Contains(a, "/") })
		if len(service.GetHosts()) > 0 {
			put("ServiceEntry", home, fmt.Sprintf("s%d-%d", i, seed), nil, service)
		}
	}
	for i := range r.IntN(4) {
		put("WorkloadEntry", namespace(), fmt.Sprintf("w%d-%d", i, seed), r.labels(), r.workload())
	}
	for i := range r.IntN(4) {
		put("DestinationRule", namespace(), fmt.Sprintf("d%d-%d", i, seed), nil, r.policy())
	}
	for i := range r.IntN(4) {
		put("VirtualService", namespace(), fmt.Sprintf("v%d-%d", i, seed), nil, r.routes())
	}
	for i := range r.IntN(3) {
		r.split = r.shared
		put("Sidecar", r.pick("shop", "shop", "istio-system"), fmt.Sprintf("e%d-%d", i, seed), nil, r.sidecar(mark))
	}
	for i := range r.IntN(3) {
		put("Gateway", namespace(), fmt.Sprintf("g%d", i), nil, r.gateway())
	}
	for i := range r.IntN(4) {
		put("VirtualService", namespace(), fmt.Sprintf("gv%d-%d", i, seed), nil, r.gatewayRoutes())
	}
	for i := range r.IntN(4) {
		put("Telemetry", r.pick("istio-system", "shop", "shop", "other"), fmt.Sprintf("t%d-%d", i, seed), nil, r.telemetry())
	}
	put("MeshConfig", "", "istio", nil, r.setConfig(t, mark))
	now = text.String()
	before = selected.ReplaceAllStringFunc(now, func(label string) string {
		return strings.NewReplacer("one", "two", "two", "one").Replace(label)
	})
	return mark, now, strings.ReplaceAll(before, mark, "before-"+mark)
}

// derive gives some routes the fields that only routes derived from Kubernetes objects have.
func (r *randomMesh) derive(v *networking.VirtualService) {
	for _, h := range v.GetHttp() {
		if h.GetRedirect() != nil && r.seldom(2) {
			h.Redirect.Uri = "%PREFIX()%" + r.pick("", "/", "/new")
			h.Redirect.RedirectPort = &networking.HTTPRedirect_DerivePort{
				DerivePort: networking.HTTPRedirect_RedirectPortSelection(r.IntN(2)), //nolint:gosec // there are two
			}
		}
		if h.GetRewrite().GetUriRegexRewrite() != nil {
			h.Rewrite = &networking.HTTPRewrite{Uri: "/"}
		}
	}
}

// selected matches the labels of workload selectors.
var selected = regexp.MustCompile(`app"?: ?"?(one|two)`)

var besideHosts = []string{"one.internal", "two.internal", "three.internal", "*.wild.internal"}

// sidecar makes a Sidecar, which imports the mark.
func (r *randomMesh) sidecar(mark string) *networking.Sidecar {
	s := &networking.Sidecar{}
	if r.seldom(2) {
		s.WorkloadSelector = &networking.WorkloadSelector{Labels: map[string]string{"app": r.pick("vm1", "two")}}
	}
	hosts := func() (imports []string) {
		for range 1 + r.IntN(2) {
			imports = append(imports, r.pick("*/*", "./*", "shop/*", "other/*", "*/one.internal", "shop/two.internal", "*/*.wild.internal", "~/*"))
		}
		return imports
	}
	if r.seldom(3) {
		s.Egress = append(s.Egress, &networking.IstioEgressListener{
			Port: &networking.SidecarPort{Number: 80, Protocol: r.pick(r.spoken[0]...), Name: "p"}, Hosts: hosts(),
		})
	}
	if r.often(4) {
		s.Egress = append(s.Egress, &networking.IstioEgressListener{Hosts: append(hosts(), "shop/"+mark)})
	} else {
		s.Egress = append(s.Egress, &networking.IstioEgressListener{
			Port: &networking.SidecarPort{Number: 7777, Protocol: "TCP", Name: "mark"}, Hosts: []string{"shop/" + mark},
		})
	}
	if r.seldom(3) {
		s.OutboundTrafficPolicy = &networking.OutboundTrafficPolicy{Mode: networking.OutboundTrafficPolicy_Mode(r.IntN(2))}
	}
	return s
}

func (r *randomMesh) gateway() *networking.Gateway {
	g := &networking.Gateway{Selector: map[string]string{"app": r.pick("vm1", "vm1", "two")}}
	for i := range 1 + r.IntN(3) {
		s := &networking.Server{
			Port:  &networking.Port{Number: 80, Name: fmt.Sprint("p", i), Protocol: r.pick("HTTP", "HTTP", "HTTP2", "GRPC")},
			Hosts: []string{r.pick("*", "one.internal", "*.internal", "shop/*", "./two.internal", "other/*.internal")},
		}
		if r.seldom(4) {
			s.Hosts = append(s.Hosts, r.pick("three.internal", "*.wild.internal"))
		}
		switch r.IntN(6) {
		case 0:
			s.Port.Number, s.Port.Protocol = 443, "HTTPS"
			s.Tls = &networking.ServerTLSSettings{
				Mode: r.mode(), ServerCertificate: "/etc/certs/cert.pem", PrivateKey: "/etc/certs/key.pem", CaCertificates: "/etc/certs/ca.pem",
			}
		case 1:
			s.Port.Number, s.Port.Protocol = 8443, "TLS" // beside HTTPS of the same names, Envoy rejects istiod's listener
			s.Tls = &networking.ServerTLSSettings{Mode: networking.ServerTLSSettings_PASSTHROUGH}
		case 2:
			s.Port.Number, s.Port.Protocol = 9000, "TCP"
			s.Hosts = []string{"*"}
		case 3:
			s.Port.Number = 8080
		case 4:
			s.Tls = &networking.ServerTLSSettings{HttpsRedirect: true}
		}
		for _, host := range s.GetHosts() {
			if n := s.GetPort().GetNumber(); s.GetTls().GetHttpsRedirect() || n == 443 {
				r.secure = append(r.secure, fmt.Sprint(n, "/", host[strings.LastIndexByte(host, '/')+1:]))
			}
		}
		g.Servers = append(g.Servers, s)
	}
	return g
}

// clashes says whether such servers have one host on one port.
func (r *randomMesh) clashes() bool {
	for i, host := range r.secure {
		if slices.Contains(r.secure[:i], host) {
			return true
		}
	}
	return false
}

func (r *randomMesh) mode() networking.ServerTLSSettings_TLSmode {
	return []networking.ServerTLSSettings_TLSmode{
		networking.ServerTLSSettings_SIMPLE, networking.ServerTLSSettings_SIMPLE, networking.ServerTLSSettings_MUTUAL,
		networking.ServerTLSSettings_OPTIONAL_MUTUAL,
	}[r.IntN(4)]
}

// gatewayRoutes makes a VirtualService that is bound to gateways.
func (r *randomMesh) gatewayRoutes() *networking.VirtualService {
	v := r.routes()
	v.Hosts = []string{r.pick("one.internal", "two.internal", "three.internal", "a.wild.internal", "*.wild.internal", "*.internal", "*")}
	v.Gateways = []string{r.pick("g0", "shop/g0", "shop/g1", "other/g0")}
	if r.seldom(4) {
		v.Gateways = append(v.Gateways, r.pick("mesh", "g1"))
	}
	if r.seldom(3) {
		v.Tcp = []*networking.TCPRoute{{
			Match: []*networking.L4MatchAttributes{{Port: 9000}}, Route: []*networking.RouteDestination{{Destination: r.destination()}},
		}}
	}
	if r.seldom(3) && v.GetHosts()[0] != "*" {
		v.Tls = []*networking.TLSRoute{{
			Match: []*networking.TLSMatchAttributes{{Port: 8443, SniHosts: v.GetHosts()}},
			Route: []*networking.RouteDestination{{Destination: r.destination()}},
		}}
	}
	return v
}

func (r *randomMesh) labels() map[string]string {
	if r.seldom(4) {
		return nil
	}
	return map[string]string{"app": r.pick("one", "two"), "version": r.pick("v1", "v2")}
}

func (r *randomMesh) workload() *networking.WorkloadEntry {
	w := &networking.WorkloadEntry{
		Address: r.pick("10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1"), Labels: r.labels(), Weight: r.Uint32N(3),
		Locality: r.pick("", "eu", "eu/a", "eu/a/1", "us/b"),
	}
	if r.seldom(3) {
		w.Ports = map[string]uint32{"p0": 8000 + r.Uint32N(3)}
	}
	return w
}

func (r *randomMesh) service() *networking.ServiceEntry {
	s := &networking.ServiceEntry{
		Hosts:      []string{besideHosts[r.IntN(len(besideHosts))]},
		Resolution: networking.ServiceEntry_Resolution(r.IntN(4)), //nolint:gosec // there are four
		Location:   networking.ServiceEntry_Location(r.IntN(2)),   //nolint:gosec // there are two
	}
	if r.seldom(4) {
		s.Hosts = append(s.Hosts, r.pick("four.internal", "five.internal"))
	}
	if r.seldom(2) {
		s.Addresses = []string{r.pick("240.0.0.1", "240.0.0.2", "fd00::9", "240.1.0.0/16", "240.1.2.0/24")}
	}
	if r.seldom(4) {
		s.ExportTo = []string{r.pick(".", "*", "shop")}
	}
	for i := range 1 + r.IntN(3) {
		s.Ports = append(s.Ports, &networking.ServicePort{
			Number: []uint32{80, 443, 8080}[i], Name: fmt.Sprint("p", i), Protocol: r.pick(r.spoken[i]...),
			TargetPort: r.Uint32N(2) * 9000,
		})
	}
	switch {
	case s.GetResolution() == networking.ServiceEntry_NONE:
	case s.GetResolution() != networking.ServiceEntry_DNS_ROUND_ROBIN && r.seldom(2): // with several of them, Envoy rejects istiod's listener
		s.WorkloadSelector = &networking.WorkloadSelector{Labels: map[string]string{"app": r.pick("one", "two")}}
	default:
		for range r.IntN(3) {
			s.Endpoints = append(s.Endpoints, r.workload())
		}
		if s.GetResolution() >= networking.ServiceEntry_DNS {
			for _, e := range s.GetEndpoints() {
				e.Address = r.pick("a.names.internal", "b.names.internal")
			}
			if s.GetResolution() == networking.ServiceEntry_DNS_ROUND_ROBIN && len(s.GetEndpoints()) > 1 {
				s.Endpoints = s.Endpoints[:1]
			}
		}
	}
	return s
}

func (r *randomMesh) text() *networking.StringMatch {
	switch r.IntN(4) {
	case 0:
		return &networking.StringMatch{MatchType: &networking.StringMatch_Exact{Exact: "/exact"}}
	case 1:
		return &networking.StringMatch{MatchType: &networking.StringMatch_Regex{Regex: "/r.*"}}
	default:
		return &networking.StringMatch{MatchType: &networking.StringMatch_Prefix{Prefix: r.pick("/", "/a", "/b/")}}
	}
}

func (r *randomMesh) destination() *networking.Destination {
	d := &networking.Destination{
		Host:   r.pick("one.internal", "two.internal", "three.internal", "x.wild.internal", "nowhere.internal"),
		Subset: r.pick("", "", "v1", "v2"),
	}
	if r.seldom(3) {
		d.Port = &networking.PortSelector{Number: []uint32{80, 8080}[r.IntN(2)]}
	}
	return d
}

func (r *randomMesh) headers() *networking.Headers {
	if r.often(3) {
		return nil
	}
	return &networking.Headers{
		Request: &networking.Headers_HeaderOperations{
			Set: map[string]string{"x-set": "1"}, Add: map[string]string{"x-add": "2"},
			Remove: []string{"x-gone"},
		},
		Response: &networking.Headers_HeaderOperations{Set: map[string]string{"x-set": "%REQ(x)%"}, Remove: []string{"x-gone"}},
	}
}

func (r *randomMesh) routes() *networking.VirtualService {
	v := &networking.VirtualService{Hosts: []string{r.pick("one.internal", "two.internal", "three.internal", "none.internal",
		"*.wild.internal", "*.internal")}}
	if r.seldom(4) {
		v.Gateways = []string{r.pick("mesh", "gateway")}
	}
	if r.seldom(4) {
		v.ExportTo = []string{r.pick(".", "*", "shop")}
	}
	for range 1 + r.IntN(3) {
		v.Http = append(v.Http, r.httpRoute())
	}
	return v
}

func (r *randomMesh) httpRoute() *networking.HTTPRoute {
	h := &networking.HTTPRoute{Name: r.pick("", "a"), Headers: r.headers()}
	for range r.IntN(3) {
		m := r.match()
		if h.Match = append(h.Match, m); m.GetSourceNamespace() == "other" { // with others beside it, istiod forgets where the route leads
			h.Match = []*networking.HTTPMatchRequest{m}
			break
		}
	}
	switch r.IntN(6) {
	case 0:
		h.Redirect = &networking.HTTPRedirect{
			Uri: r.pick("", "/other"), Authority: r.pick("", "elsewhere.internal"),
			RedirectCode: []uint32{0, 301, 302, 307}[r.IntN(4)],
		}
		if h.Redirect.Scheme = r.pick("", "https"); r.seldom(2) {
			h.Redirect.RedirectPort = &networking.HTTPRedirect_Port{Port: 8443}
		}
		return h
	case 1:
		h.DirectResponse = &networking.HTTPDirectResponse{
			Status: 418,
			Body:   &networking.HTTPBody{Specifier: &networking.HTTPBody_String_{String_: "tea"}},
		}
		return h
	}
	n := 1 + r.IntN(2)
	for i := range n {
		h.Route = append(h.Route, &networking.HTTPRouteDestination{
			Destination: r.destination(), Headers: r.headers(),
			Weight: int32((i + 1) * (n - 1)),
		})
	}
	if r.seldom(3) {
		h.Timeout = r.duration(0, 1, 5)
	}
	if r.seldom(3) {
		h.Retries = &networking.HTTPRetry{Attempts: r.Int32N(4), RetryOn: r.pick("", "5xx", "503,reset", "gateway-error")}
		if r.seldom(2) {
			h.Retries.PerTryTimeout = r.duration(1, 2)
		}
		if r.seldom(3) {
			h.Retries.RetryRemoteLocalities = wrapperspb.Bool(true)
		}
	}
	switch r.IntN(4) {
	case 0:
		h.Rewrite = &networking.HTTPRewrite{Uri: r.pick("", "/new"), Authority: r.pick("new.internal", "")}
		if h.Rewrite.GetUri() == "" && h.Rewrite.GetAuthority() == "" {
			h.Rewrite.Uri = "/"
		}
	case 1:
		h.Rewrite = &networking.HTTPRewrite{UriRegexRewrite: &networking.RegexRewrite{Match: "^/a/(.*)$", Rewrite: "/\\1"}}
	}
	if r.seldom(4) {
		h.Fault = &networking.HTTPFaultInjection{}
		if r.seldom(2) {
			h.Fault.Delay = &networking.HTTPFaultInjection_Delay{
				HttpDelayType: &networking.HTTPFaultInjection_Delay_FixedDelay{FixedDelay: r.duration(1)}, Percentage: &networking.Percent{Value: 0.5},
			}
		}
		if h.Fault.GetDelay() == nil || r.seldom(2) {
			h.Fault.Abort = &networking.HTTPFaultInjection_Abort{
				ErrorType: &networking.HTTPFaultInjection_Abort_HttpStatus{HttpStatus: 500}, Percentage: &networking.Percent{Value: 20},
			}
		}
	}
	if r.seldom(4) {
		h.Mirror, h.MirrorPercentage = r.destination(), &networking.Percent{Value: 10}
	}
	if r.seldom(4) {
		h.CorsPolicy = &networking.CorsPolicy{
			AllowOrigins: []*networking.StringMatch{{MatchType: &networking.StringMatch_Exact{Exact: "https://a.internal"}}},
			AllowMethods: []string{"GET", "POST"}, AllowHeaders: []string{"x-a"}, ExposeHeaders: []string{"x-b"}, MaxAge: r.duration(60),
			AllowCredentials: wrapperspb.Bool(r.seldom(2)),
		}
	}
	return h
}

func (r *randomMesh) match() *networking.HTTPMatchRequest {
	m := &networking.HTTPMatchRequest{Name: r.pick("", "m")}
	if r.seldom(2) {
		m.Uri = r.text()
		m.IgnoreUriCase = r.seldom(4)
	}
	switch r.IntN(9) {
	case 0:
		m.Headers = map[string]*networking.StringMatch{"x-a": r.text(), "x-b": {}}
	case 1:
		m.WithoutHeaders = map[string]*networking.StringMatch{"x-a": r.text(), "x-b": {}}
	case 2:
		m.SourceLabels = map[string]string{"app": r.pick("vm1", "two")}
	case 3:
		m.SourceNamespace = r.pick("shop", "other")
	case 4:
		m.Port = []uint32{80, 8080}[r.IntN(2)]
	case 5:
		m.Method = &networking.StringMatch{MatchType: &networking.StringMatch_Exact{Exact: "GET"}}
	case 6:
		m.QueryParams = map[string]*networking.StringMatch{"q": r.text()}
	case 7:
		m.Authority = &networking.StringMatch{MatchType: &networking.StringMatch_Prefix{Prefix: "one"}}
	default:
		m.Scheme = &networking.StringMatch{MatchType: &networking.StringMatch_Exact{Exact: "http"}}
	}
	return m
}
