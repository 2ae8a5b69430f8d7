package translate

import (
	"cmp"
	"maps"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	grpcwebv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/grpc_web/v3"
	inspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/http_inspector/v3"
	originaldstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_dst/v3"
	originalsrcv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_src/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"
	typev1beta1 "istio.io/api/type/v1beta1"

	"tributary/resource"
	"tributary/server/envoy/extend"
	"tributary/server/envoy/model"
	"tributary/server/envoy/telemetry"
)

const (
	virtualInbound = "virtualInbound"
	loopSource     = "127.0.0.6" // of connections to the workload: rules of redirection exempt it
	originalMark   = 1337        // of connections that keep the address of the client: rules of routing know it
)

// addInbound adds the inbound listeners of a sidecar, and their clusters.
func (t *Translation) addInbound(v *model.View) {
	if v.Extended != nil {
		t.Objects = append(slices.Clip(t.Objects), v.Extended.Objects...)
	}
	patches := extend.New(v.Extended, networking.EnvoyFilter_SIDECAR_INBOUND, &t.Findings)
	addCluster := func(c *clusterv3.Cluster, hosts ...string) {
		if patched, kept := patches.Cluster(c, hosts...); kept {
			t.Clusters = append(t.Clusters, EntryOf(patched))
		}
	}
	var chains []*listenerv3.FilterChain
	for i := range v.Inbound.Ports {
		w := &v.Inbound.Ports[i]
		c := inboundCluster(v, w)
		of := []*listenerv3.FilterChain{refusing(w.Number)}
		if why := model.Refused(c); why != "" {
			t.Findings.Note(w.Place, "%s: connections are refused", why)
		} else {
			addCluster(c, w.Hosts...)
			of = t.portChains(v, w)
		}
		if !w.Bound {
			chains = append(chains, of...)
			continue
		}
		t.addListener(v, model.ListenerName(w.Address, w.Number), socket(w.Address, w.Number), of, true)
	}
	if v.Inbound.Captured {
		chains = append(t.passChains(v), chains...)
		t.addListener(v, virtualInbound, socket(model.Wildcard, model.InboundPort), chains, false)
		addCluster(inboundPassthrough())
	}
}

// inboundChain says which connections a filter chain is for.
type inboundChain struct {
	http       bool
	protocols  []string // of HTTP, or those that Istio's proxies name in TLS
	transport  string   // tls or raw_buffer
	terminates bool     // TLS ends here
}

// The application protocols by which chains are told apart.
var (
	plainHTTP  = []string{"http/1.1", "h2c"}
	mutualHTTP = []string{"istio-http/1.0", "istio-http/1.1", "istio-h2"}
	mutualTCP  = []string{"istio-peer-exchange", "istio"}
	mutualAll  = append([]string{"istio", "istio-peer-exchange"}, mutualHTTP...)
)

const (
	overTLS = "tls"
	inClear = "raw_buffer"
)

// inboundChains returns the filter chains for a protocol, with the matches and in the order of istiod.
func inboundChains(protocol string, mode model.MutualTLS) []inboundChain {
	isHTTP, sniffed := protocol != "" && protocol != "tcp", protocol == ""
	switch {
	case mode == model.Strict && sniffed:
		return []inboundChain{{true, mutualHTTP, overTLS, true}, {false, nil, overTLS, true}}
	case mode == model.Strict:
		return []inboundChain{{isHTTP, nil, overTLS, true}}
	case mode == model.Permissive && sniffed:
		return []inboundChain{
			{true, mutualHTTP, overTLS, true},
			{true, plainHTTP, inClear, false},
			{false, mutualTCP, overTLS, true},
			{false, nil, inClear, false},
			{false, nil, overTLS, false},
		}
	case mode == model.Permissive && isHTTP:
		return []inboundChain{{true, mutualAll, overTLS, true}, {true, nil, inClear, false}}
	case mode == model.Permissive:
		return []inboundChain{{false, mutualAll, overTLS, true}, {false, nil, overTLS, false}, {false, nil, inClear, false}}
	case sniffed:
		return []inboundChain{{true, plainHTTP, inClear, false}, {false, nil, inClear, false}}
	}
	return []inboundChain{{isHTTP, nil, inClear, false}}
}

// mutualOn returns the TLS settings for HTTP and for other connections to a port of the workload, which are nil if mutual TLS does not end
// at the sidecar, and the mode. ok is false if no connection is accepted: mutual TLS is a must, and there is no certificate.
func mutualOn(v *model.View, port uint32) (http, tcp *corev3.TransportSocket, mode model.MutualTLS, ok bool) {
	mode = v.Secured.Mutual
	if of, own := v.Secured.MutualOn[port]; own {
		mode = of
	}
	if mode == model.Disabled {
		return nil, nil, mode, true
	}
	http = inboundMutual(v.Client, v.Secured, "h2", "http/1.1")
	tcp = inboundMutual(v.Client, v.Secured, "istio-peer-exchange", "h2", "http/1.1")
	if http == nil || tcp == nil {
		return nil, nil, model.Disabled, mode == model.Permissive
	}
	return http, tcp, mode, true
}

// portChains returns the filter chains of a port, 0 for all ports without chains.
func (t *Translation) portChains(v *model.View, w *model.Workport) (all []*listenerv3.FilterChain) {
	http, tcp, mode, ok := mutualOn(v, w.Number)
	if !ok {
		return []*listenerv3.FilterChain{refusing(w.Number)}
	}
	matches := inboundChains(w.Protocol, mode)
	switch {
	case w.TLS == nil:
	case mode != model.Disabled:
		t.Findings.Note(w.Place.In("tls"), "TLS ends there only where PeerAuthentication disables mutual TLS")
	case !canTerminate(w.TLS):
		t.Findings.Note(w.Place.In("tls"), "there is no certificate for it: connections are refused")
		return []*listenerv3.FilterChain{refusing(w.Number)}
	default:
		http = t.downstreamTLS(w.TLS, v.Client, v.Secured.Domains, []string{"h2", "http/1.1"})
		tcp, matches = http, []inboundChain{{w.Protocol != "tcp", nil, overTLS, true}}
	}
	for _, m := range matches {
		c := inboundFilters(v, m, w)
		if m.terminates {
			if c.TransportSocket = tcp; m.http {
				c.TransportSocket = http
			}
		}
		all = append(all, c)
	}
	return all
}

// canTerminate says whether a server's TLS ends at the sidecar, and has what it needs for that.
func canTerminate(tls *networking.ServerTLSSettings) bool {
	switch tls.GetMode() {
	case networking.ServerTLSSettings_SIMPLE, networking.ServerTLSSettings_MUTUAL, networking.ServerTLSSettings_OPTIONAL_MUTUAL:
		return len(model.Certificates(tls, "")) > 0 && (!model.Verifies(tls) || model.Authority(tls, "") != "")
	}
	return false
}

// passChains returns the filter chains of redirected connections that no port of the workload has: they pass to where they are meant for,
// but to the port of the listener itself, which would loop.
func (t *Translation) passChains(v *model.View) []*listenerv3.FilterChain {
	loop := refusing(model.InboundPort)
	loop.Name = virtualInbound + "-blackhole"
	all := []*listenerv3.FilterChain{loop}
	for _, port := range append([]uint32{0}, slices.Sorted(maps.Keys(v.Secured.MutualOn))...) {
		own := slices.ContainsFunc(v.Inbound.Ports, func(w model.Workport) bool { return w.Number == port && !w.Bound })
		if !own && port != model.InboundPort {
			all = append(all, t.portChains(v, &model.Workport{Number: port})...)
		}
	}
	return all
}

// refusing returns a filter chain that ends all connections to a port, or to all ports if it is 0.
func refusing(port uint32) *listenerv3.FilterChain {
	c := &listenerv3.FilterChain{Name: "refused", Filters: []*listenerv3.Filter{tcpProxy(model.BlackHole, nil)}}
	if port != 0 {
		c.FilterChainMatch = &listenerv3.FilterChainMatch{DestinationPort: wrapperspb.UInt32(port)}
	}
	return c
}

// inboundFilters returns a filter chain of connections to a port.
func inboundFilters(v *model.View, m inboundChain, w *model.Workport) *listenerv3.FilterChain {
	c := &listenerv3.FilterChain{Name: virtualInbound, FilterChainMatch: &listenerv3.FilterChainMatch{
		TransportProtocol: m.transport, ApplicationProtocols: m.protocols,
	}}
	if w.Number != 0 {
		c.FilterChainMatch.DestinationPort = wrapperspb.UInt32(w.Number)
	}
	cluster, stats := model.InboundPassthrough, model.InboundPassthrough
	switch {
	case w.Address != "":
		c.Name = model.ListenerName(w.Address, w.Number)
		cluster, stats = model.InboundName(w.Number), "inbound_"+c.GetName()
		if w.Sidecar != nil {
			c.Metadata = istioMetadata(map[string]*structpb.Value{
				"config": structpb.NewStringValue("/apis/networking.istio.io/v1/namespaces/" + w.Sidecar.Namespace + "/sidecar/" + w.Sidecar.Name),
			})
		}
	case m.http:
		c.Name += "-catchall-http"
	}
	if m.http {
		c.Filters = []*listenerv3.Filter{model.NetworkFilter("envoy.filters.network.http_connection_manager", inboundManager(v, stats, cluster, w))}
	} else {
		c.Filters = append(slices.Clip(v.Secured.TCP), tcpProxy(cluster, v.Seen))
	}
	c.Filters = extend.WithPlugins(v.Extended, c.GetFilters(), typev1beta1.WorkloadMode_SERVER, w.Number)
	return c
}

// inboundManager returns the manager of requests that come to the workload.
func inboundManager(v *model.View, stats, cluster string, w *model.Workport) *hcmv3.HttpConnectionManager {
	m := httpManager(model.StatName(stats), "", v.Seen)
	m.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: inboundRoutes(cluster, w)}
	m.ServerName = "istio-envoy"
	m.ForwardClientCertDetails = hcmv3.HttpConnectionManager_APPEND_FORWARD
	m.SetCurrentClientCertDetails = &hcmv3.HttpConnectionManager_SetCurrentClientCertDetails{
		Subject: wrapperspb.Bool(true), Uri: true, Dns: true,
	}
	if isHTTP2(w.Protocol) {
		m.Http2ProtocolOptions = &corev3.Http2ProtocolOptions{}
	}
	if w.Protocol == "grpc-web" {
		m.HttpFilters = append([]*hcmv3.HttpFilter{model.HTTPFilter("envoy.filters.http.grpc_web", &grpcwebv3.GrpcWeb{})}, m.GetHttpFilters()...)
	}
	secureHTTP(v, m, typev1beta1.WorkloadMode_SERVER, w.Number)
	return m
}

func isHTTP2(protocol string) bool { return protocol == "http2" || strings.HasPrefix(protocol, "grpc") }

// inboundRoutes lead all requests to the workload, without a limit of time.
func inboundRoutes(cluster string, w *model.Workport) *routev3.RouteConfiguration {
	action := &routev3.RouteAction{
		ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster}, Timeout: durationpb.New(0),
		MaxStreamDuration: &routev3.RouteAction_MaxStreamDuration{MaxStreamDuration: durationpb.New(0), GrpcTimeoutHeaderMax: durationpb.New(0)},
	}
	if !strings.HasPrefix(w.Protocol, "grpc") {
		action.RetryPolicy = &routev3.RetryPolicy{RetryOn: "reset-before-request", NumRetries: wrapperspb.UInt32(2)}
	}
	return &routev3.RouteConfiguration{Name: cluster, ValidateClusters: wrapperspb.Bool(false), VirtualHosts: []*routev3.VirtualHost{{
		Name: "inbound|http|" + model.RouteName(w.Service), Domains: []string{"*"}, Routes: []*routev3.Route{{
			Name:      "default",
			Match:     &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
			Decorator: &routev3.Decorator{Operation: model.HostPort(w.Host, w.Service) + "/*"},
			Action:    &routev3.Route_Route{Route: action},
		}},
	}}}
}

// addListener adds a listener of the workload, with the listener filters that its chains need.
func (t *Translation) addListener(v *model.View, name string, at *corev3.Address, chains []*listenerv3.FilterChain, bound bool) {
	l := &listenerv3.Listener{
		Name: name, Address: at, TrafficDirection: corev3.TrafficDirection_INBOUND,
		ContinueOnListenerFiltersTimeout: true, ListenerFiltersTimeout: durationpb.New(0),
		MaxConnectionsToAcceptPerSocketEvent: wrapperspb.UInt32(1), FilterChains: chains,
	}
	telemetry.OfStrays(v.Seen, l)
	if !bound {
		l.ListenerFilters = append(l.ListenerFilters, listenerFilter("envoy.filters.listener.original_dst", &originaldstv3.OriginalDst{}))
	}
	if !bound && v.Inbound.Transparent {
		l.Transparent = wrapperspb.Bool(true)
		l.ListenerFilters = append(l.ListenerFilters,
			listenerFilter("envoy.filters.listener.original_src", &originalsrcv3.OriginalSrc{Mark: originalMark}))
	}
	l.ListenerFilters = append(l.ListenerFilters, inspectors(chains)...)
	l, kept := extend.New(v.Extended, networking.EnvoyFilter_SIDECAR_INBOUND, &t.Findings).Listener(l)
	if !kept {
		return
	}
	if v.Client.OnDemand {
		OnDemand(l)
	}
	t.Listeners = append(t.Listeners, EntryOf(l))
}

// inspectors returns the listener filters that find out what chains are matched by, for the ports where some chain needs them: a connection
// of a port where the server speaks first would wait for them.
func inspectors(chains []*listenerv3.FilterChain) (all []*listenerv3.ListenerFilter) {
	ports := make(map[uint32]bool)
	tls, http := make(map[uint32]bool), make(map[uint32]bool)
	for _, c := range chains {
		m := c.GetFilterChainMatch()
		port := m.GetDestinationPort().GetValue()
		ports[port] = true
		tls[port] = tls[port] || m.GetTransportProtocol() == overTLS
		http[port] = http[port] || slices.ContainsFunc(m.GetApplicationProtocols(), func(p string) bool { return slices.Contains(plainHTTP, p) })
	}
	// Ports without chains of their own are as 0. If that needs the filter, it is turned off where it is not needed; else, turned on.
	within := func(f *listenerv3.ListenerFilter, needed map[uint32]bool) {
		var rules []*listenerv3.ListenerFilterChainMatchPredicate
		for _, port := range slices.Sorted(maps.Keys(ports)) {
			if port != 0 && needed[port] != needed[0] {
				rules = append(rules, &listenerv3.ListenerFilterChainMatchPredicate{
					Rule: &listenerv3.ListenerFilterChainMatchPredicate_DestinationPortRange{
						DestinationPortRange: &typev3.Int32Range{Start: int32(port), End: int32(port + 1)}, //nolint:gosec // ports
					},
				})
			}
		}
		switch len(rules) {
		case 0:
			if !needed[0] {
				return
			}
		case 1:
			f.FilterDisabled = rules[0]
		default:
			f.FilterDisabled = &listenerv3.ListenerFilterChainMatchPredicate{Rule: &listenerv3.ListenerFilterChainMatchPredicate_OrMatch{
				OrMatch: &listenerv3.ListenerFilterChainMatchPredicate_MatchSet{Rules: rules},
			}}
		}
		if !needed[0] {
			f.FilterDisabled = &listenerv3.ListenerFilterChainMatchPredicate{
				Rule: &listenerv3.ListenerFilterChainMatchPredicate_NotMatch{NotMatch: f.GetFilterDisabled()},
			}
		}
		all = append(all, f)
	}
	within(inspectTLS(), tls)
	within(listenerFilter("envoy.filters.listener.http_inspector", &inspectorv3.HttpInspector{}), http)
	return all
}

// neverCleaned is as long as istiod keeps the addresses of an inbound cluster: 292 years.
const neverCleaned = time.Duration((math.MaxInt64-999999999)/(1000*1000*1000)) * time.Second

// inboundCluster returns the cluster of a port of the workload.
func inboundCluster(v *model.View, w *model.Workport) *clusterv3.Cluster {
	name := model.InboundName(w.Number)
	c := &clusterv3.Cluster{
		Name: name, AltStatName: model.StatName(name), ConnectTimeout: durationpb.New(connectTimeout), CircuitBreakers: unlimited(),
		CommonLbConfig: &clusterv3.Cluster_CommonLbConfig{}, Metadata: inboundMetadata(v, w),
	}
	endpoint := w.Endpoint
	if w.Sidecar == nil && v.Inbound.Localhost {
		endpoint = model.HostPort(model.Localhost, w.Number)
	}
	host, to := inboundAddress(endpoint)
	if to == nil {
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST}
		c.LbPolicy, c.CleanupInterval = clusterv3.Cluster_CLUSTER_PROVIDED, durationpb.New(neverCleaned)
	} else {
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
		c.LoadAssignment = &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{{
			LbEndpoints: []*endpointv3.LbEndpoint{{
				HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: to}},
			}},
		}}}
	}
	var options *httpv3.HttpProtocolOptions
	switch {
	case isHTTP2(w.Protocol):
		options = http2()
	case w.Protocol == "":
		options = &httpv3.HttpProtocolOptions{UpstreamProtocolOptions: asDownstream()}
	}
	policy := &networking.TrafficPolicy{}
	if w.Policy != nil {
		on := w.Policy.On(w.Service, nil)
		policy.ConnectionPool, policy.RetryBudget = on.GetConnectionPool(), on.GetRetryBudget()
	}
	if w.Pool != nil {
		policy.ConnectionPool = w.Pool
	}
	if h := policy.GetConnectionPool().GetHttp(); h.GetH2UpgradePolicy() != networking.ConnectionPoolSettings_HTTPSettings_DEFAULT {
		policy.ConnectionPool = proto.CloneOf(policy.GetConnectionPool())
		policy.ConnectionPool.Http.H2UpgradePolicy = networking.ConnectionPoolSettings_HTTPSettings_DEFAULT // it is for clients
	}
	if options = apply(policy, c, options); options != nil {
		c.TypedExtensionProtocolOptions = map[string]*anypb.Any{HTTPOptions: model.ToAny(options)}
	}
	if host != model.Localhost && host != "::1" {
		c.UpstreamBindConfig = fromLoop()
	}
	return c
}

// inboundAddress returns the address where the workload listens, or nil if that is where connections are meant for.
func inboundAddress(endpoint string) (host string, at *corev3.Address) {
	if path, ok := strings.CutPrefix(endpoint, UnixPrefix); ok {
		return "", &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path}}}
	}
	host, text, err := net.SplitHostPort(endpoint)
	port, parseErr := strconv.ParseUint(text, 10, 16)
	if cmp.Or(err, parseErr) != nil || !resource.IsAddress(host) {
		return "", nil
	}
	return host, socket(host, uint32(port))
}

// fromLoop has connections to the workload come from an address that rules of redirection exempt: else they would come back.
func fromLoop() *corev3.BindConfig {
	return &corev3.BindConfig{SourceAddress: &corev3.SocketAddress{
		Address: loopSource, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 0},
	}}
}

// inboundMetadata names the services of a port, and the rule of its first one.
func inboundMetadata(v *model.View, w *model.Workport) *corev3.Metadata {
	fields := make(map[string]*structpb.Value)
	var services []*structpb.Value
	for _, host := range w.Hosts {
		services = append(services, structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
			"host": structpb.NewStringValue(host), "name": structpb.NewStringValue(host), "namespace": structpb.NewStringValue(v.Client.Namespace),
		}}))
	}
	if len(services) > 0 && !w.External {
		fields["services"] = structpb.NewListValue(&structpb.ListValue{Values: services})
	}
	if w.Policy != nil {
		fields["config"] = structpb.NewStringValue("/apis/networking.istio.io/v1/namespaces/" + w.Policy.Namespace + "/destination-rule/" +
			w.Policy.Name)
	}
	if len(fields) == 0 {
		return nil
	}
	return istioMetadata(fields)
}

// inboundPassthrough returns the cluster of redirected connections that no port of the workload has.
func inboundPassthrough() *clusterv3.Cluster {
	c := passthrough()
	c.Name, c.UpstreamBindConfig = model.InboundPassthrough, fromLoop()
	return c
}
