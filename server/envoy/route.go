package envoy

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"sync"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	previousv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"tributary/server/xds"
)

// virtualHost is what a service has among the routes of a port: its domains apart from the rest, since no domain may stand twice
// among the routes of a port, and which services share one is known only where they are put together.
type virtualHost struct {
	place   place // of what has it
	domains []string
	rest    []byte // an encoded VirtualHost without domains
	field   []byte // all of it, as a field of a RouteConfiguration

	asked struct { // what those are told who ask for one of the domains, by domain; made when the first one may
		mu sync.Mutex
		by map[string][]*xds.Entry
	}
}

func newVirtualHost(at place, domains []string, rest *routev3.VirtualHost) *virtualHost {
	v := &virtualHost{place: at, domains: domains, rest: mustMarshal(rest)}
	v.field = v.encode(func(string) bool { return false })
	return v
}

// equal says whether both are the same; either may be nil.
func (v *virtualHost) equal(o *virtualHost) bool {
	return v == o || v != nil && o != nil && v.place == o.place && slices.Equal(v.domains, o.domains) && bytes.Equal(v.rest, o.rest)
}

// encode returns the virtual host as a field of a RouteConfiguration, without the domains that are taken, or nothing if all are.
func (v *virtualHost) encode(taken func(domain string) bool) []byte {
	var body []byte
	for _, d := range v.domains {
		if !taken(d) {
			body = protowire.AppendString(protowire.AppendTag(body, fieldDomains, protowire.BytesType), d)
		}
	}
	if body == nil {
		return nil
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, fieldVirtualHosts, protowire.BytesType), append(body, v.rest...))
}

// Field numbers of RouteConfiguration and VirtualHost.
const (
	fieldVirtualHosts = 2
	fieldName         = 1
	fieldDomains      = 2
)

// virtualHost returns what the service has among the routes of a port.
func (v *view) virtualHost(p *port, client profile, found *findings) *virtualHost {
	host := &routev3.VirtualHost{Name: hostPort(v.host, p.number), IncludeRequestAttemptCount: true}
	if r := v.rules[p.part]; r != nil {
		host.Routes = way{view: v, rule: r, client: client, port: p.number, found: found}.routes()
	}
	if host.GetRoutes() == nil {
		host.Routes = []*routev3.Route{v.defaultRoute(p, client)}
	}
	return newVirtualHost(p.place(), v.service.domains(p, client.role), host)
}

// unregisteredPort is where routes of a host are that is no service.
const unregisteredPort = 80

// unregistered returns the routes of a host that is no service, or nil.
func (v *view) unregistered(client profile, found *findings) *virtualHost {
	host := &routev3.VirtualHost{Name: hostPort(v.host, unregisteredPort), IncludeRequestAttemptCount: true}
	if host.Routes = (way{view: v, rule: v.own, client: client, port: unregisteredPort, found: found}).routes(); host.GetRoutes() == nil {
		return nil
	}
	return newVirtualHost(place{v.own.key, "spec.hosts"}, []string{inURL(v.host)}, host)
}

// domains returns the names under which the service is asked for: with a dot at the end too, as some resolvers complete it. Envoys compare them
// without the port; gRPC clients compare with what was dialled.
func (s *service) domains(p *port, role role) []string {
	hosts := []string{s.host}
	if !strings.HasSuffix(s.host, ".") {
		hosts = append(hosts, s.host+".")
	}
	for _, a := range s.addresses {
		if !strings.Contains(a, "/") {
			hosts = append(hosts, inURL(a))
		}
	}
	if role == sidecar {
		return hosts
	}
	var domains []string
	for _, h := range hosts {
		domains = append(domains, h, h+":"+routeName(p.number))
	}
	return domains
}

// defaultRoute leads to the port's cluster, with the retries that Istio makes of itself.
func (v *view) defaultRoute(p *port, client profile) *routev3.Route {
	hash := hashPolicy(v.policy.on(p.number, nil).GetLoadBalancer().GetConsistentHash())
	route := &routev3.RouteAction{
		ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: clusterName(p.number, "", v.host)},
		RetryPolicy:      retries(nil, false),
	}
	limit(route, nil, client.role)
	if hash != nil {
		route.HashPolicy = []*routev3.RouteAction_HashPolicy{hash}
	}
	return &routev3.Route{
		Name:      "default",
		Match:     &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
		Decorator: &routev3.Decorator{Operation: hostPort(v.host, p.number) + "/*"},
		Action:    &routev3.Route_Route{Route: route},
	}
}

// limit sets how long a route waits for a response; nil is for ever. Envoy starts to count when it has the whole request, and a timeout counts
// against the endpoint. The deadline of a gRPC request shortens it. max_stream_duration, which only gRPC clients read, would
// have Envoy cut uploads and websockets.
func limit(route *routev3.RouteAction, timeout *durationpb.Duration, role role) {
	if timeout == nil {
		timeout = durationpb.New(0)
	}
	route.Timeout = timeout
	if role == proxyless {
		route.MaxStreamDuration = &routev3.RouteAction_MaxStreamDuration{MaxStreamDuration: timeout}
	} else {
		route.MaxGrpcTimeout = timeout //nolint:staticcheck // as istiod does: what replaces it limits the whole stream
	}
}

func defaultRetries() *routev3.RetryPolicy {
	return &routev3.RetryPolicy{
		RetryOn:    "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes",
		NumRetries: wrapperspb.UInt32(2),
		RetryHostPredicate: []*routev3.RetryPolicy_RetryHostPredicate{{
			Name:       "envoy.retry_host_predicates.previous_hosts",
			ConfigType: &routev3.RetryPolicy_RetryHostPredicate_TypedConfig{TypedConfig: toAny(&previousv3.PreviousHostsPredicate{})},
		}},
		HostSelectionRetryMaxAttempts: 5,
	}
}

// maxDirectBody is how large the body of a direct response may be.
const maxDirectBody = 1 << 20

// routesHead is a RouteConfiguration without virtual hosts. Clusters are not looked up when it comes: one that is not there fails its
// own requests, not all routes of the port.
func routesHead(name string, role role) *routev3.RouteConfiguration {
	r := &routev3.RouteConfiguration{Name: name}
	if role != proxyless {
		r.ValidateClusters = wrapperspb.Bool(false)
		r.MaxDirectResponseBodySizeBytes = wrapperspb.UInt32(maxDirectBody)
		r.IgnorePortInHostMatching = true
	}
	return r
}

// anyOther is the virtual host of whatever no service has: it goes where it was meant to go, or, if clients are restricted to what they know, nowhere.
func anyOther(restricted bool) *virtualHost {
	if restricted {
		return blocked()
	}
	const name = "allow_any"
	route := &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: passthrough}}
	limit(route, nil, sidecar)
	return newVirtualHost(place{}, []string{"*"}, &routev3.VirtualHost{
		Name: name, IncludeRequestAttemptCount: true,
		Routes: []*routev3.Route{{
			Name:   name,
			Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
			Action: &routev3.Route_Route{Route: route},
		}},
	})
}

func blocked() *virtualHost {
	const name = "block_all"
	return newVirtualHost(place{}, []string{"*"}, &routev3.VirtualHost{
		Name: name, IncludeRequestAttemptCount: true,
		Routes: []*routev3.Route{{
			Name:   name,
			Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
			Action: &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: http.StatusBadGateway}},
		}},
	})
}

// grpcRoutes is the RouteConfiguration of one port of a service, for clients that dial it by name.
func (v *view) grpcRoutes(p *port, client profile, found *findings) ([]byte, string) {
	name := clusterName(p.number, "", v.host)
	return append(mustMarshal(routesHead(name, proxyless)), v.virtualHost(p, client, found).field...), name
}
