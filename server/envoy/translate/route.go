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
	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/model"
	"tributary/server/xds"
)

// VirtualHost is a service's part of the routes of a port. Its domains are stored separately: Envoy allows a domain
// once in a RouteConfiguration, and duplicates show only when all hosts are assembled.
type VirtualHost struct {
	Place   model.Place // of its definition
	Domains []string
	Rest    []byte    // an encoded VirtualHost without domains and body
	Body    *Body     // nil if Rest has the routes
	Key     model.Key // of its content and place

	OnDemand struct { // a cache of the entries for clients that request the virtual host by domain
		Mu      sync.Mutex
		Entries map[string][]*xds.Entry
	}
}

// Body has the routes of a virtual host, encoded, with all but its name and domains. Hosts with equal routes share it:
// a VirtualService has many of them.
type Body struct {
	Bytes    []byte // empty without routes
	Key      model.Key
	findings model.Findings
}

// BodyCache returns the body of a key: that of another host, or else that of build.
type BodyCache func(key model.Digest, build func() *Body) *Body

// body returns the body that build makes of VirtualServices, which key identifies, and notes its findings.
func (t *Translation) body(key model.Digest, build func(findings *model.Findings) *routev3.VirtualHost) *Body {
	body := t.bodies(key, func() *Body {
		result := &Body{}
		host := build(&result.findings)
		if len(host.GetRoutes()) > 0 || host.GetRequireTls() == routev3.VirtualHost_ALL {
			host.IncludeRequestAttemptCount = true
			result.Bytes = model.MustMarshal(host)
		}
		result.findings = result.findings.Sorted()
		result.Key = sha256.Sum256(result.Bytes)
		return result
	})
	t.Findings = append(t.Findings, body.findings...)
	return body
}

// virtualServiceKey identifies a VirtualService on a port.
func virtualServiceKey(virtualService *model.VirtualService, port uint32) (digest model.Digest) {
	digest.Object(virtualService.Key)
	digest.Text(virtualService.Version)
	digest.Number(int64(port))
	return digest
}

func newVirtualHost(place model.Place, domains []string, rest *routev3.VirtualHost, body *Body) *VirtualHost {
	virtualHost := &VirtualHost{Place: place, Domains: domains, Rest: model.MustMarshal(rest), Body: body}
	var digest model.Digest
	digest.Object(place.Object)
	digest.Number(int64(len(domains)))
	digest.Text(domains...)
	digest.Text(place.Field, string(virtualHost.Rest))
	if body != nil {
		digest = append(digest, body.Key[:]...)
	}
	virtualHost.Key = sha256.Sum256(digest)
	return virtualHost
}

// Equal reports whether both are the same; either may be nil.
func (v *VirtualHost) Equal(o *VirtualHost) bool {
	return v == o || v != nil && o != nil && v.Key == o.Key
}

// Routes returns the encoded body.
func (v *VirtualHost) Routes() []byte {
	if v.Body == nil {
		return nil
	}
	return v.Body.Bytes
}

// Append appends the virtual host with some domains as a field of a RouteConfiguration. Without domains it returns b.
func (v *VirtualHost) Append(b []byte, domains []string) []byte {
	size := len(v.Rest) + len(v.Routes())
	for _, domain := range domains {
		size += protowire.SizeTag(FieldDomains) + protowire.SizeBytes(len(domain))
	}
	if len(domains) == 0 {
		return b
	}
	b = protowire.AppendTag(b, fieldVirtualHosts, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(size)) //nolint:gosec // positive
	for _, domain := range domains {
		b = appendString(b, FieldDomains, domain)
	}
	return append(append(b, v.Rest...), v.Routes()...)
}

// Field numbers of RouteConfiguration and VirtualHost.
const (
	fieldVirtualHosts = 2
	FieldName         = 1
	FieldDomains      = 2
)

// detectedRoutes names the routes of a port for a listener of its service alone, with istiod's name.
func detectedRoutes(host string, port uint32) string { return host + ":" + model.RouteName(port) }

// virtualHost returns the service's virtual host of a port, with the service's names unless others are given.
func (t *Translation) virtualHost(view *model.View, port *model.Port, names []string) *VirtualHost {
	if names == nil {
		names = domains(view.Service, port, view.Client)
	}
	host := &routev3.VirtualHost{Name: model.HostPort(view.Host, port.Number)}
	if virtualService := view.RoutesByListener[port.Part]; virtualService != nil {
		if body := t.routesOf(view, virtualService, port.Number); len(body.Bytes) > 0 {
			return newVirtualHost(port.Place(), names, host, body)
		}
	}
	host.IncludeRequestAttemptCount = true
	host.Routes = []*routev3.Route{defaultRoute(view, port)}
	return newVirtualHost(port.Place(), names, host, nil)
}

// routesOf returns the routes of a VirtualService on a port, which are equal for all of its hosts.
func (t *Translation) routesOf(view *model.View, virtualService *model.VirtualService, port uint32) *Body {
	return t.body(virtualServiceKey(virtualService, port), func(findings *model.Findings) *routev3.VirtualHost {
		context := routeContext{view: view, virtualService: virtualService, port: port, findings: findings}
		return &routev3.VirtualHost{Routes: context.routes()}
	})
}

// unregisteredHost returns the virtual host of a host that is not a service, or nil.
func (t *Translation) unregisteredHost(view *model.View) *VirtualHost {
	body := t.routesOf(view, view.UnregisteredRoutes, model.UnregisteredPort)
	if len(body.Bytes) == 0 {
		return nil
	}
	host := &routev3.VirtualHost{Name: model.HostPort(view.Host, model.UnregisteredPort)}
	return newVirtualHost(model.PlaceIn(view.UnregisteredRoutes.Key, "spec.hosts"),
		[]string{model.InURL(view.Host)}, host, body)
}

// domains returns the names of the service, also with a dot at the end, as some resolvers add it. Envoys compare them
// without the port; gRPC clients compare them with the name that was dialled. As with istiod, sidecars know Services of
// Kubernetes by the shorter names of their namespace, too.
func domains(service *model.Service, port *model.Port, client model.Profile) []string {
	hosts := []string{service.Host}
	if !strings.HasSuffix(service.Host, ".") {
		hosts = append(hosts, service.Host+".")
	}
	for _, a := range service.Addresses {
		if !strings.Contains(a, "/") {
			hosts = append(hosts, model.InURL(a))
		}
	}
	if client.Role == model.Sidecar {
		return append(hosts, shorterNames(service.Host, client.Namespace)...)
	}
	var domains []string
	for _, h := range hosts {
		domains = append(domains, h, h+":"+model.RouteName(port.Number))
	}
	return domains
}

// shorterNames returns the names that the resolver of a Pod in a namespace completes to a Service of Kubernetes: NAME,
// NAME.NAMESPACE and NAME.NAMESPACE.svc. Other hosts have none.
func shorterNames(host, namespace string) []string {
	long, _, isService := strings.Cut(host, ".svc.")
	name, place, _ := strings.Cut(long, ".")
	switch {
	case !isService || name == "" || model.IsWildcard(name) || place == "" || strings.Contains(place, "."):
		return nil
	case place == namespace:
		return []string{name, long, long + ".svc"}
	}
	return []string{long, long + ".svc"}
}

// defaultRoute leads to the port's cluster, with Istio's default retries.
func defaultRoute(view *model.View, port *model.Port) *routev3.Route {
	hash := HashPolicy(view.Policy.On(port.Number, nil).GetLoadBalancer().GetConsistentHash())
	route := &routev3.RouteAction{
		ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: model.ClusterName(port.Number, "", view.Host)},
		RetryPolicy:      defaultRetries(),
	}
	setTimeout(route, nil, view.Client.Role)
	if hash != nil {
		route.HashPolicy = []*routev3.RouteAction_HashPolicy{hash}
	}
	return &routev3.Route{
		Name:      "default",
		Match:     model.AnyPath(),
		Decorator: &routev3.Decorator{Operation: model.HostPort(view.Host, port.Number) + "/*"},
		Action:    &routev3.Route_Route{Route: route},
	}
}

// setTimeout sets how long a route waits for a response; nil is no limit. Envoy starts the timer when it has the whole
// request; a timeout counts as an error of the endpoint; the deadline of a gRPC request shortens it. Only gRPC clients
// get max_stream_duration: in Envoy it would cut uploads and websockets.
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
			Name: "envoy.retry_host_predicates.previous_hosts",
			ConfigType: &routev3.RetryPolicy_RetryHostPredicate_TypedConfig{
				TypedConfig: model.ToAny(&previousv3.PreviousHostsPredicate{}),
			},
		}},
		HostSelectionRetryMaxAttempts: 5,
	}
}

// maxDirectBody is the maximum size of the body of a direct response.
const maxDirectBody = 1 << 20

// RoutesHead returns a RouteConfiguration without virtual hosts. Envoy does not validate its clusters: a missing one
// fails its own requests, not all routes of the port.
func RoutesHead(name string, role model.Role) *routev3.RouteConfiguration {
	routeConfiguration := &routev3.RouteConfiguration{Name: name}
	if role != model.Proxyless {
		routeConfiguration.ValidateClusters = wrapperspb.Bool(false)
		routeConfiguration.MaxDirectResponseBodySizeBytes = wrapperspb.UInt32(maxDirectBody)
		routeConfiguration.IgnorePortInHostMatching = true
	}
	return routeConfiguration
}

// CatchAllHost returns the virtual host for hosts without a service: requests go to their original address or, if
// restricted, get 502.
func CatchAllHost(restricted bool) *VirtualHost {
	action := &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: model.Passthrough}}
	setTimeout(action, nil, model.Sidecar)
	route := &routev3.Route{Name: "allow_any", Match: model.AnyPath(), Action: &routev3.Route_Route{Route: action}}
	if restricted {
		route.Name = "block_all"
		route.Action = directResponse(&networking.HTTPDirectResponse{Status: http.StatusBadGateway})
	}
	return newVirtualHost(model.Place{}, []string{"*"}, &routev3.VirtualHost{
		Name: route.GetName(), IncludeRequestAttemptCount: true, Routes: []*routev3.Route{route},
	}, nil)
}

// grpcRoutes returns the RouteConfiguration of one port of a service, and its name, for clients that dial it by name.
func (t *Translation) grpcRoutes(v *model.View, p *model.Port) ([]byte, string) {
	name := model.ClusterName(p.Number, "", v.Host)
	host := t.virtualHost(v, p, nil)
	return host.Append(model.MustMarshal(RoutesHead(name, model.Proxyless)), host.Domains), name
}
