package translate

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

	"tributary/server/envoy/model"
	"tributary/server/xds"
)

// VirtualHost is what a service has among the routes of a port: its domains apart from the rest, since no domain may stand twice
// among the routes of a port, and which services share one is known only where they are put together.
type VirtualHost struct {
	Place   model.Place // of what has it
	Domains []string
	Rest    []byte // an encoded VirtualHost without domains
	Field   []byte // all of it, as a field of a RouteConfiguration

	Asked struct { // what is sent to those who ask for one of the domains, by domain; made when the first one may
		Mu sync.Mutex
		By map[string][]*xds.Entry
	}
}

func newVirtualHost(at model.Place, domains []string, rest *routev3.VirtualHost) *VirtualHost {
	v := &VirtualHost{Place: at, Domains: domains, Rest: model.MustMarshal(rest)}
	v.Field = v.Encode(func(string) bool { return false })
	return v
}

// Equal says whether both are the same; either may be nil.
func (v *VirtualHost) Equal(o *VirtualHost) bool {
	return v == o || v != nil && o != nil && v.Place == o.Place && slices.Equal(v.Domains, o.Domains) && bytes.Equal(v.Rest, o.Rest)
}

// Encode returns the virtual host as a field of a RouteConfiguration, without the domains that are taken, or nothing if all are.
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

// virtualHost returns what the service has among the routes of a port.
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

// unregistered returns the routes of a host that is no service, or nil.
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

// domains returns the names under which the service is asked for: with a dot at the end too, as some resolvers complete it. Envoys compare
// them without the port; gRPC clients compare with what was dialled.
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

// defaultRoute leads to the port's cluster, with the retries that Istio makes of itself.
func defaultRoute(v *model.View, p *model.Port, client model.Profile) *routev3.Route {
	hash := HashPolicy(v.Policy.On(p.Number, nil).GetLoadBalancer().GetConsistentHash())
	route := &routev3.RouteAction{
		ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: model.ClusterName(p.Number, "", v.Host)},
		RetryPolicy:      retries(nil, false),
	}
	limit(route, nil, client.Role)
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

// limit sets how long a route waits for a response; nil is for ever. Envoy starts to count when it has the whole request, and a timeout
// counts against the endpoint. The deadline of a gRPC request shortens it. max_stream_duration, which only gRPC clients read, would have
// Envoy cut uploads and websockets.
func limit(route *routev3.RouteAction, timeout *durationpb.Duration, role model.Role) {
	if timeout == nil {
		timeout = durationpb.New(0)
	}
	route.Timeout = timeout
	if role == model.Proxyless {
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
			ConfigType: &routev3.RetryPolicy_RetryHostPredicate_TypedConfig{TypedConfig: model.ToAny(&previousv3.PreviousHostsPredicate{})},
		}},
		HostSelectionRetryMaxAttempts: 5,
	}
}

// maxDirectBody is how large the body of a direct response may be.
const maxDirectBody = 1 << 20

// RoutesHead is a RouteConfiguration without virtual hosts. Clusters are not looked up when it comes: one that is not there fails its
// own requests, not all routes of the port.
func RoutesHead(name string, role model.Role) *routev3.RouteConfiguration {
	r := &routev3.RouteConfiguration{Name: name}
	if role != model.Proxyless {
		r.ValidateClusters = wrapperspb.Bool(false)
		r.MaxDirectResponseBodySizeBytes = wrapperspb.UInt32(maxDirectBody)
		r.IgnorePortInHostMatching = true
	}
	return r
}

// AnyOther is the virtual host of whatever no service has: it goes where it was meant to go, or, if clients are restricted to what they
// know, nowhere.
func AnyOther(restricted bool) *VirtualHost {
	if restricted {
		return blocked()
	}
	const name = "allow_any"
	route := &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: model.Passthrough}}
	limit(route, nil, model.Sidecar)
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

// grpcRoutes is the RouteConfiguration of one port of a service, for clients that dial it by name.
func grpcRoutes(v *model.View, p *model.Port, client model.Profile, found *model.Findings) ([]byte, string) {
	name := model.ClusterName(p.Number, "", v.Host)
	return append(model.MustMarshal(RoutesHead(name, model.Proxyless)), virtualHost(v, p, client, found).Field...), name
}
