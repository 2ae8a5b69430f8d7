package translate

import (
	"cmp"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	grpcwebv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/grpc_web/v3"
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
	loopSource     = "127.0.0.6" // source of connections to the workload: rules of redirection exempt it
	originalMark   = 1337        // mark of connections that keep the address of the client, for rules of routing
)

// addInbound adds the inbound listeners of a sidecar, and their clusters.
func (t *Translation) addInbound(view *model.View) {
	patches := extend.New(view.Patches, networking.EnvoyFilter_SIDECAR_INBOUND, &t.Findings)
	addCluster := func(c *clusterv3.Cluster, hosts ...string) {
		if patched, served := patches.Cluster(c, hosts...); served {
			t.Clusters = append(t.Clusters, EntryOf(patched))
		}
	}
	addListener := func(listener *listenerv3.Listener) {
		telemetry.ObserveUnmatched(view.Observability, listener)
		listener, served := patches.Listener(listener)
		if !served {
			return
		}
		if view.Client.OnDemand {
			OnDemand(listener)
		}
		t.Listeners = append(t.Listeners, EntryOf(listener))
	}
	var captured []*listenerv3.FilterChain
	for i := range view.Inbound.Ports {
		port := &view.Inbound.Ports[i]
		cluster := inboundCluster(view, port)
		chains := []*listenerv3.FilterChain{refusing("refused", port.Target)}
		if reason := model.Refused(cluster); reason != "" {
			t.Findings.Note(port.Place, "%s: connections are refused", reason)
		} else {
			addCluster(cluster, port.Hosts...)
			chains = t.portChains(view, port)
		}
		if port.Bound {
			addListener(inboundListener(model.ListenerName(port.Address, port.Target), socket(port.Address, port.Target),
				chains))
		} else {
			captured = append(captured, chains...)
		}
	}
	if !view.Inbound.Captured {
		return
	}
	listener := inboundListener(virtualInbound, socket(model.Wildcard, model.InboundCapturePort),
		append(t.passChains(view), captured...))
	redirected := []*listenerv3.ListenerFilter{listenerFilter("envoy.filters.listener.original_dst",
		&originaldstv3.OriginalDst{})}
	if view.Inbound.Transparent {
		listener.Transparent = wrapperspb.Bool(true)
		redirected = append(redirected,
			listenerFilter("envoy.filters.listener.original_src", &originalsrcv3.OriginalSrc{Mark: originalMark}))
	}
	listener.ListenerFilters = append(redirected, listener.GetListenerFilters()...)
	addListener(listener)
	through := passthrough()
	through.Name, through.UpstreamBindConfig = model.InboundPassthrough, fromLoop()
	addCluster(through)
}

// inboundChain selects the connections of a filter chain.
type inboundChain struct {
	http       bool
	protocols  []string // of HTTP, or those that Istio's proxies name in TLS
	transport  string   // tls or raw_buffer
	terminates bool     // TLS ends here
}

// The application protocols in the matches of chains.
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

// inboundChains are the filter chains for HTTP, for other protocols, and for protocols that Envoy detects, with the
// matches and in the order of istiod.
var inboundChains = map[model.MutualTLS]struct{ http, other, unknown []inboundChain }{
	model.Strict: {
		http:    []inboundChain{{true, nil, overTLS, true}},
		other:   []inboundChain{{false, nil, overTLS, true}},
		unknown: []inboundChain{{true, mutualHTTP, overTLS, true}, {false, nil, overTLS, true}},
	},
	model.Permissive: {
		http:  []inboundChain{{true, mutualAll, overTLS, true}, {true, nil, inClear, false}},
		other: []inboundChain{{false, mutualAll, overTLS, true}, {false, nil, overTLS, false}, {false, nil, inClear, false}},
		unknown: []inboundChain{
			{true, mutualHTTP, overTLS, true},
			{true, plainHTTP, inClear, false},
			{false, mutualTCP, overTLS, true},
			{false, nil, inClear, false},
			{false, nil, overTLS, false},
		},
	},
	model.Disabled: {
		http:    []inboundChain{{true, nil, inClear, false}},
		other:   []inboundChain{{false, nil, inClear, false}},
		unknown: []inboundChain{{true, plainHTTP, inClear, false}, {false, nil, inClear, false}},
	},
}

// portChains returns the filter chains of a port, 0 for all ports without chains. If TLS is required and has no
// certificate, connections are refused.
func (t *Translation) portChains(view *model.View, w *model.WorkloadPort) (filterChains []*listenerv3.FilterChain) {
	mode := view.Security.Mutual
	if portMode, isSet := view.Security.MutualByPort[w.Target]; isSet {
		mode = portMode
	}
	var http, transportSocket *corev3.TransportSocket
	if mode != model.Disabled {
		http = inboundMutual(view.Client, view.Security, "h2", "http/1.1")
		transportSocket = inboundMutual(view.Client, view.Security, "istio-peer-exchange", "h2", "http/1.1")
	}
	if http == nil && (mode == model.Permissive || view.Security.Plaintext) {
		mode = model.Disabled
	}
	matches := inboundChains[mode].unknown
	switch w.Protocol {
	case "":
	case "tcp":
		matches = inboundChains[mode].other
	default:
		matches = inboundChains[mode].http
	}
	switch serverTLSSettings := w.Ingress.GetTls(); {
	case mode == model.Strict && http == nil:
		return []*listenerv3.FilterChain{refusing("refused", w.Target)}
	case serverTLSSettings == nil:
	case mode != model.Disabled:
		t.Findings.Note(w.Place.Subfield("tls"), "TLS ends there only where PeerAuthentication disables mutual TLS")
	case !canTerminate(serverTLSSettings):
		t.Findings.Note(w.Place.Subfield("tls"), "there is no certificate for it: connections are refused")
		return []*listenerv3.FilterChain{refusing("refused", w.Target)}
	default:
		http = t.downstreamTLS(serverTLSSettings, view.Client, view.Security.Domains, []string{"h2", "http/1.1"})
		transportSocket, matches = http, []inboundChain{{w.Protocol != "tcp", nil, overTLS, true}}
	}
	for _, m := range matches {
		filterChain := inboundFilters(view, m, w)
		if m.terminates {
			if filterChain.TransportSocket = transportSocket; m.http {
				filterChain.TransportSocket = http
			}
		}
		filterChains = append(filterChains, filterChain)
	}
	return filterChains
}

// canTerminate reports whether a server's TLS ends at the sidecar, with a certificate.
func canTerminate(tls *networking.ServerTLSSettings) bool {
	kind, _ := model.KindOf(&networking.Server{Port: &networking.Port{Protocol: "TLS"}, Tls: tls})
	return kind == model.ServerTLS && tls.GetMode() != networking.ServerTLSSettings_ISTIO_MUTUAL
}

// passChains returns the filter chains of redirected connections to other ports than the workload's: they pass to their
// original address, except for the port of the listener itself, which would loop.
func (t *Translation) passChains(view *model.View) []*listenerv3.FilterChain {
	filterChains := []*listenerv3.FilterChain{refusing(virtualInbound+"-blackhole", model.InboundCapturePort)}
	for _, port := range append([]uint32{0}, slices.Sorted(maps.Keys(view.Security.MutualByPort))...) {
		hasChains := slices.ContainsFunc(view.Inbound.Ports,
			func(w model.WorkloadPort) bool { return w.Target == port && !w.Bound })
		if !hasChains && port != model.InboundCapturePort {
			filterChains = append(filterChains, t.portChains(view,
				&model.WorkloadPort{ServicePort: model.ServicePort{Target: port}})...)
		}
	}
	return filterChains
}

// refusing returns a filter chain that ends all connections to a port, or to all ports if it is 0.
func refusing(name string, port uint32) *listenerv3.FilterChain {
	filterChain := &listenerv3.FilterChain{Name: name, Filters: []*listenerv3.Filter{tcpProxy(model.BlackHole, nil)}}
	if port != 0 {
		filterChain.FilterChainMatch = &listenerv3.FilterChainMatch{DestinationPort: wrapperspb.UInt32(port)}
	}
	return filterChain
}

// inboundFilters returns a filter chain of connections to a port.
func inboundFilters(view *model.View, m inboundChain, workloadPort *model.WorkloadPort) *listenerv3.FilterChain {
	c := &listenerv3.FilterChain{Name: virtualInbound, FilterChainMatch: &listenerv3.FilterChainMatch{
		TransportProtocol: m.transport, ApplicationProtocols: m.protocols,
	}}
	if workloadPort.Target != 0 {
		c.FilterChainMatch.DestinationPort = wrapperspb.UInt32(workloadPort.Target)
	}
	cluster, stats := model.InboundPassthrough, model.InboundPassthrough
	switch {
	case workloadPort.Address != "":
		c.Name = model.ListenerName(workloadPort.Address, workloadPort.Target)
		cluster, stats = model.InboundName(workloadPort.Target), "inbound_"+c.GetName()
		if workloadPort.Ingress != nil {
			c.Metadata = istioMetadata(map[string]*structpb.Value{"config": configValue("sidecar", workloadPort.Place.Object)})
		}
	case m.http:
		c.Name += "-catchall-http"
	}
	c.Filters = append(slices.Clip(view.Security.TCP), tcpProxy(cluster, view.Observability))
	if m.http {
		c.Filters = managed(inboundManager(view, stats, cluster, workloadPort)).GetFilters()
	}
	c.Filters = extend.WithPlugins(view.Patches, c.GetFilters(), typev1beta1.WorkloadMode_SERVER, workloadPort.Target)
	return c
}

// inboundManager returns the manager of requests that come to the workload.
func inboundManager(view *model.View, stats, cluster string, w *model.WorkloadPort) *hcmv3.HttpConnectionManager {
	m := httpManager(model.StatName(stats), "", view.Observability)
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
		m.HttpFilters = append([]*hcmv3.HttpFilter{model.HTTPFilter("envoy.filters.http.grpc_web", &grpcwebv3.GrpcWeb{})},
			m.GetHttpFilters()...)
	}
	secureHTTP(view, m, typev1beta1.WorkloadMode_SERVER, w.Target)
	return m
}

func isHTTP2(protocol string) bool { return protocol == "http2" || strings.HasPrefix(protocol, "grpc") }

// inboundRoutes returns routes that lead all requests to the workload, without a timeout.
func inboundRoutes(cluster string, workloadPort *model.WorkloadPort) *routev3.RouteConfiguration {
	action := &routev3.RouteAction{
		ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster}, Timeout: durationpb.New(0),
		MaxStreamDuration: &routev3.RouteAction_MaxStreamDuration{
			MaxStreamDuration:    durationpb.New(0),
			GrpcTimeoutHeaderMax: durationpb.New(0),
		},
	}
	if !strings.HasPrefix(workloadPort.Protocol, "grpc") {
		action.RetryPolicy = &routev3.RetryPolicy{RetryOn: "reset-before-request", NumRetries: wrapperspb.UInt32(2)}
	}
	return &routev3.RouteConfiguration{
		Name: cluster, ValidateClusters: wrapperspb.Bool(false),
		VirtualHosts: []*routev3.VirtualHost{{
			Name: "inbound|http|" + model.RouteName(workloadPort.Number), Domains: []string{"*"}, Routes: []*routev3.Route{{
				Name:      "default",
				Match:     model.AnyPath(),
				Decorator: &routev3.Decorator{Operation: model.HostPort(workloadPort.Host, workloadPort.Number) + "/*"},
				Action:    &routev3.Route_Route{Route: action},
			}},
		}},
	}
}

// inboundListener returns a listener of the workload, with the listener filters that its chains need.
func inboundListener(name string, address *corev3.Address, chains []*listenerv3.FilterChain) *listenerv3.Listener {
	return &listenerv3.Listener{
		Name: name, Address: address, TrafficDirection: corev3.TrafficDirection_INBOUND,
		ContinueOnListenerFiltersTimeout: true, ListenerFiltersTimeout: durationpb.New(0),
		MaxConnectionsToAcceptPerSocketEvent: wrapperspb.UInt32(1), FilterChains: chains, ListenerFilters: inspectors(chains),
	}
}

// inspectors returns the listener filters that detect TLS and HTTP, for the ports where the match of a chain needs
// them: a connection to a port where the server speaks first would wait for them.
func inspectors(chains []*listenerv3.FilterChain) (filters []*listenerv3.ListenerFilter) {
	add := func(f *listenerv3.ListenerFilter, needs func(*listenerv3.FilterChainMatch) bool) {
		needed := make(map[uint32]bool) // by port; 0 is all ports without chains of their own
		for _, c := range chains {
			port := c.GetFilterChainMatch().GetDestinationPort().GetValue()
			needed[port] = needed[port] || needs(c.GetFilterChainMatch())
		}
		var exceptions []*listenerv3.ListenerFilterChainMatchPredicate
		for _, port := range slices.Sorted(maps.Keys(needed)) {
			if needed[port] != needed[0] {
				exceptions = append(exceptions, &listenerv3.ListenerFilterChainMatchPredicate{
					Rule: &listenerv3.ListenerFilterChainMatchPredicate_DestinationPortRange{
						DestinationPortRange: &typev3.Int32Range{Start: int32(port), End: int32(port + 1)}, //nolint:gosec // ports
					},
				})
			}
		}
		switch {
		case len(exceptions) == 0 && !needed[0]:
			return
		case len(exceptions) == 1:
			f.FilterDisabled = exceptions[0]
		case len(exceptions) > 1:
			f.FilterDisabled = &listenerv3.ListenerFilterChainMatchPredicate{Rule: &listenerv3.ListenerFilterChainMatchPredicate_OrMatch{
				OrMatch: &listenerv3.ListenerFilterChainMatchPredicate_MatchSet{Rules: exceptions},
			}}
		}
		if !needed[0] { // the filter runs only on the exceptions
			f.FilterDisabled = &listenerv3.ListenerFilterChainMatchPredicate{
				Rule: &listenerv3.ListenerFilterChainMatchPredicate_NotMatch{NotMatch: f.GetFilterDisabled()},
			}
		}
		filters = append(filters, f)
	}
	add(inspectTLS(), func(m *listenerv3.FilterChainMatch) bool { return m.GetTransportProtocol() == overTLS })
	add(inspectHTTP(), func(m *listenerv3.FilterChainMatch) bool {
		return slices.Equal(m.GetApplicationProtocols(), plainHTTP)
	})
	return filters
}

// neverCleaned is the cleanup interval of istiod for inbound clusters: 292 years.
const neverCleaned = time.Duration((math.MaxInt64-999999999)/(1000*1000*1000)) * time.Second

// inboundCluster returns the cluster of a port of the workload.
func inboundCluster(view *model.View, workloadPort *model.WorkloadPort) *clusterv3.Cluster {
	name := model.InboundName(workloadPort.Target)
	c := &clusterv3.Cluster{
		Name: name, AltStatName: model.StatName(name), ConnectTimeout: durationpb.New(connectTimeout),
		CircuitBreakers: unlimited(),
		CommonLbConfig:  &clusterv3.Cluster_CommonLbConfig{}, Metadata: inboundMetadata(view, workloadPort),
	}
	endpoint := workloadPort.Endpoint
	if workloadPort.Ingress == nil && view.Inbound.Localhost {
		endpoint = model.HostPort(model.Localhost, workloadPort.Target)
	}
	host, address := inboundAddress(endpoint)
	if address == nil {
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST}
		c.LbPolicy, c.CleanupInterval = clusterv3.Cluster_CLUSTER_PROVIDED, durationpb.New(neverCleaned)
	} else {
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
		c.LoadAssignment = &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{{
			LbEndpoints: []*endpointv3.LbEndpoint{{
				HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: address}},
			}},
		}}}
	}
	if host != model.Localhost && host != "::1" {
		c.UpstreamBindConfig = fromLoop()
	}
	var options *httpv3.HttpProtocolOptions
	switch {
	case isHTTP2(workloadPort.Protocol):
		options = http2()
	case workloadPort.Protocol == "":
		options = &httpv3.HttpProtocolOptions{UpstreamProtocolOptions: asDownstream()}
	}
	on := workloadPort.Policy.On(workloadPort.Number, nil)
	policy := &networking.TrafficPolicy{
		ConnectionPool: cmp.Or(workloadPort.Pool, on.GetConnectionPool()),
		RetryBudget:    on.GetRetryBudget(),
	}
	if policy.GetConnectionPool().GetHttp() != nil {
		policy.ConnectionPool = proto.CloneOf(policy.GetConnectionPool())
		// The setting is for clients.
		policy.ConnectionPool.Http.H2UpgradePolicy = networking.ConnectionPoolSettings_HTTPSettings_DEFAULT
	}
	if options = apply(policy, c, options); options != nil {
		c.TypedExtensionProtocolOptions = map[string]*anypb.Any{HTTPOptions: model.ToAny(options)}
	}
	return c
}

// inboundAddress returns the address of the workload, or nil for the original address of connections.
func inboundAddress(endpoint string) (host string, address *corev3.Address) {
	if path, ok := strings.CutPrefix(endpoint, UnixPrefix); ok {
		return "", &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path}}}
	}
	addrPort, err := netip.ParseAddrPort(endpoint)
	if host = addrPort.Addr().String(); err != nil || !resource.IsAddress(host) {
		return "", nil
	}
	return host, socket(host, uint32(addrPort.Port()))
}

// fromLoop gives connections to the workload a source address that rules of redirection exempt: without it they would
// loop.
func fromLoop() *corev3.BindConfig {
	return &corev3.BindConfig{SourceAddress: &corev3.SocketAddress{
		Address: loopSource, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 0},
	}}
}

// inboundMetadata names the services of a port, and the rule of its first service.
func inboundMetadata(v *model.View, w *model.WorkloadPort) *corev3.Metadata {
	fields := make(map[string]*structpb.Value)
	if len(w.Hosts) > 0 && !w.External {
		fields["services"] = servicesValue(v.Client.Namespace, w.Hosts...)
	}
	if w.Policy.Name != "" {
		fields["config"] = configValue("destination-rule", resource.Key{Namespace: w.Policy.Namespace, Name: w.Policy.Name})
	}
	if len(fields) == 0 {
		return nil
	}
	return istioMetadata(fields)
}
