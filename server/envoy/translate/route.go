package translate

import (
	"crypto/sha256"
	"net/http"
	"strings"
	"sync"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	previousv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"tributary/server/envoy/model"
	"tributary/server/xds"
)

// VirtualHost is a service's part of the routes of a port. Its domains are apart from the rest: routes may have a domain only once, and
// which services share one is known only when the routes are put together.
type VirtualHost struct {
	Place   model.Place // of its definition
	Domains []string
	Rest    []byte    // an encoded VirtualHost without domains
	Field   []byte    // all of it, as a field of a RouteConfiguration
	Key     model.Key // of its content and place

	OnDemand struct { // caches, per domain, the entries for clients that ask for it
		Mu      sync.Mutex
		Entries map[string][]*xds.Entry
	}
}

func newVirtualHost(at model.Place, domains []string, rest *routev3.VirtualHost) *VirtualHost {
	v := &VirtualHost{Place: at, Domains: domains, Rest: model.MustMarshal(rest)}
	v.Field = v.Encode(func(string) bool { return false })
	var d model.Digest
	d.Object(at.Of)
	d.Text(at.Field, string(v.Field), string(v.Rest))
	v.Key = sha256.Sum256(d)
	return v
}

// Equal reports whether both are the same; either may be nil.
func (v *VirtualHost) Equal(o *VirtualHost) bool {
	return v == o || v != nil && o != nil && v.Key == o.Key
}

// Encode returns the virtual host as a field of a RouteConfiguration, without taken domains; nil if all are taken.
func (v *VirtualHost) Encode(taken func(domain string) bool) []byte {
	var body []byte
	for _, d := range v.Domains {
		if !taken(d) {
			body = protowire.AppendString(protowire.AppendTag(body, FieldDomains, protowire.BytesType), d)
		}
	}
	if body == nil {
		return nil
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, fieldVirtualHosts, protowire.BytesType), append(body, v.Rest...))
}

// Field numbers of RouteConfiguration and VirtualHost.
const (
	fieldVirtualHosts = 2
	FieldName         = 1
	FieldDomains      = 2
)

// virtualHost returns the service's virtual host of a port.
func virtualHost(v *model.View, p *model.Port, client model.Profile, found *model.Findings) *VirtualHost {
	host := &routev3.VirtualHost{Name: model.HostPort(v.Host, p.Number), IncludeRequestAttemptCount: true}
	if r := v.Rules[p.Part]; r != nil {
		host.Routes = routeContext{view: v, rule: r, client: client, port: p.Number, found: found}.routes()
	}
	if host.GetRoutes() == nil {
		host.Routes = []*routev3.Route{defaultRoute(v, p, client)}
	}
	return newVirtualHost(p.Place(), domains(v.Service, p, client.Role), host)
}

// unregistered returns the virtual host of a host that is not a service, or nil.
func unregistered(v *model.View, client model.Profile, found *model.Findings) *VirtualHost {
	host := &routev3.VirtualHost{Name: model.HostPort(v.Host, model.UnregisteredPort), IncludeRequestAttemptCount: true}
	if host.Routes = (routeContext{
		view: v, rule: v.Own, client: client, port: model.UnregisteredPort,
		found: found,
	}).routes(); host.GetRoutes() == nil {
		return nil
	}
	return newVirtualHost(model.Place{Of: v.Own.Key, Field: "spec.hosts"}, []string{model.InURL(v.Host)}, host)
}

// domains returns the names of the service, also with a dot at the end, as some resolvers add it. Envoys compare them without the port;
// gRPC clients compare them with the name that was dialled.
func domains(s *model.Service, p *model.Port, role model.Role) []string {
	hosts := []string{s.Host}
	if !strings.HasSuffix(s.Host, ".") {
		hosts = append(hosts, s.Host+".")
	}
	for _, a := range s.Addresses {
		if !strings.Contains(a, "/") {
			hosts = append(hosts, model.InURL(a))
		}
	}
	if role == model.Sidecar {
		return hosts
	}
	var domains []string
	for _, h := range hosts {
		domains = append(domains, h, h+":"+model.RouteName(p.Number))
	}
	return domains
}

// defaultRoute leads to the port's cluster, with Istio's default retries.
func defaultRoute(v *model.View, p *model.Port, client model.Profile) *routev3.Route {
	hash := HashPolicy(v.Policy.On(p.Number, nil).GetLoadBalancer().GetConsistentHash())
	route := &routev3.RouteAction{
		ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: model.ClusterName(p.Number, "", v.Host)},
		RetryPolicy:      retries(nil, false),
	}
	setTimeout(route, nil, client.Role)
	if hash != nil {
		route.HashPolicy = []*routev3.RouteAction_HashPolicy{hash}
	}
	return &routev3.Route{
		Name:      "default",
		Match:     &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
		Decorator: &routev3.Decorator{Operation: model.HostPort(v.Host, p.Number) + "/*"},
		Action:    &routev3.Route_Route{Route: route},
	}
}

// setTimeout sets how long a route waits for a response; nil is for ever. Envoy starts to count when it has the whole request, and a
// timeout counts against the endpoint. The deadline of a gRPC request shortens it. Only gRPC clients get max_stream_duration, by which
// Envoy would cut uploads and websockets.
func setTimeout(route *routev3.RouteAction, timeout *durationpb.Duration, role model.Role) {
	if timeout == nil {
		timeout = durationpb.New(0)
	}
	route.Timeout = timeout
	if role == model.Proxyless {
		route.MaxStreamDuration = &routev3.RouteAction_MaxStreamDuration{MaxStreamDuration: timeout}
	} else {
		route.MaxGrpcTimeout = timeout //nolint:staticcheck // as istiod does: its replacement limits the whole stream
	}
}

func defaultRetries() *routev3.RetryPolicy {
	return &routev3.RetryPolicy{
		RetryOn:    "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes",
		NumRetries: wrapperspb.UInt32(2),
		RetryHostPredicate: []*routev3.RetryPolicy_RetryHostPredicate{{
			Name:       "envoy.retry_host_predicates.previous_hosts",
			ConfigType: &routev3.RetryPolicy_RetryHostPredicate_TypedConfig{TypedConfig: model.ToAny(&previousv3.PreviousHostsPredicate{})},
		}},
		HostSelectionRetryMaxAttempts: 5,
	}
}

// maxDirectBody is the maximum size of the body of a direct response.
const maxDirectBody = 1 << 20

// RoutesHead returns a RouteConfiguration without virtual hosts. Envoy does not validate its clusters: a missing one fails its own
// requests, not all routes of the port.
func RoutesHead(name string, role model.Role) *routev3.RouteConfiguration {
	r := &routev3.RouteConfiguration{Name: name}
	if role != model.Proxyless {
		r.ValidateClusters = wrapperspb.Bool(false)
		r.MaxDirectResponseBodySizeBytes = wrapperspb.UInt32(maxDirectBody)
		r.IgnorePortInHostMatching = true
	}
	return r
}

// CatchAllHost returns the virtual host for hosts without a service: requests go to their original address or, if restricted, get 502.
func CatchAllHost(restricted bool) *VirtualHost {
	if restricted {
		return blocked()
	}
	const name = "allow_any"
	route := &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: model.Passthrough}}
	setTimeout(route, nil, model.Sidecar)
	return newVirtualHost(model.Place{}, []string{"*"}, &routev3.VirtualHost{
		Name: name, IncludeRequestAttemptCount: true,
		Routes: []*routev3.Route{{
			Name:   name,
			Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
			Action: &routev3.Route_Route{Route: route},
		}},
	})
}

func blocked() *VirtualHost {
	const name = "block_all"
	return newVirtualHost(model.Place{}, []string{"*"}, &routev3.VirtualHost{
		Name: name, IncludeRequestAttemptCount: true,
		Routes: []*routev3.Route{{
			Name:   name,
			Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
			Action: &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: http.StatusBadGateway}},
		}},
	})
}

// grpcRoutes returns the RouteConfiguration of one port of a service, and its name, for clients that dial it by name.
func grpcRoutes(v *model.View, p *model.Port, client model.Profile, found *model.Findings) ([]byte, string) {
	name := model.ClusterName(p.Number, "", v.Host)
	return append(model.MustMarshal(RoutesHead(name, model.Proxyless)), virtualHost(v, p, client, found).Field...), name
}
