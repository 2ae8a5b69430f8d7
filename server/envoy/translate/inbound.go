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
			name := model.ListenerName(port.Address, port.Target)
			addListener(inboundListener(name, socket(port.Address, port.Target), chains))
		} else {
			captured = append(captured, chains...)
		}
	}
	if !view.Inbound.Captured {
		return
	}
	listener := inboundListener(virtualInbound, socket(model.Wildcard, model.InboundCapturePort),
		append(t.passthroughChains(view), captured...))
	redirected := []*listenerv3.ListenerFilter{
		listenerFilter("envoy.filters.listener.original_dst", &originaldstv3.OriginalDst{}),
	}
	if view.Inbound.Transparent {
		listener.Transparent = wrapperspb.Bool(true)
		redirected = append(redirected,
			listenerFilter("envoy.filters.listener.original_src", &originalsrcv3.OriginalSrc{Mark: originalMark}))
	}
	listener.ListenerFilters = append(redirected, listener.GetListenerFilters()...)
	addListener(listener)
	cluster := passthrough()
	cluster.Name = model.InboundPassthrough
	cluster.UpstreamBindConfig = fromLoop()
	addCluster(cluster)
}

// inboundChain selects the connections of a filter chain.
type inboundChain struct {
	http       bool
	transport  string   // transportTLS or transportPlain
	protocols  []string // of HTTP, or those that Istio's proxies name in TLS; nil for all
	terminates bool     // TLS ends here
}

// The application protocols in the matches of chains.
var (
	plainHTTP  = []string{"http/1.1", "h2c"}
	mutualHTTP = []string{"istio-http/1.0", "istio-http/1.1", "istio-h2"}
	mutualTCP  = []string{"istio-peer-exchange", "istio"}
	mutualAll  = append([]string{"istio", "istio-peer-exchange"}, mutualHTTP...)
)

// The transport protocols in the matches of chains.
const (
	transportTLS   = "tls"
	transportPlain = "raw_buffer"
)

// inboundChains are the filter chains for HTTP, for other protocols, and for protocols that Envoy detects, with the
// matches and in the order of istiod.
var inboundChains = map[model.MutualTLS]struct{ http, tcp, detected []inboundChain }{
	model.Strict: {
		http: []inboundChain{{http: true, transport: transportTLS, terminates: true}},
		tcp:  []inboundChain{{transport: transportTLS, terminates: true}},
		detected: []inboundChain{
			{http: true, transport: transportTLS, protocols: mutualHTTP, terminates: true},
			{transport: transportTLS, terminates: true},
		},
	},
	model.Permissive: {
		http: []inboundChain{
			{http: true, transport: transportTLS, protocols: mutualAll, terminates: true},
			{http: true, transport: transportPlain},
		},
		tcp: []inboundChain{
			{transport: transportTLS, protocols: mutualAll, terminates: true},
			{transport: transportTLS},
			{transport: transportPlain},
		},
		detected: []inboundChain{
			{http: true, transport: transportTLS, protocols: mutualHTTP, terminates: true},
			{http: true, transport: transportPlain, protocols: plainHTTP},
			{transport: transportTLS, protocols: mutualTCP, terminates: true},
			{transport: transportPlain},
			{transport: transportTLS},
		},
	},
	model.Disabled: {
		http: []inboundChain{{http: true, transport: transportPlain}},
		tcp:  []inboundChain{{transport: transportPlain}},
		detected: []inboundChain{
			{http: true, transport: transportPlain, protocols: plainHTTP},
			{transport: transportPlain},
		},
	},
}

// portChains returns the filter chains of port.Target; 0 stands for the ports that have no chains of their own. If TLS
// is required and has no certificate, connections are refused.
func (t *Translation) portChains(view *model.View, port *model.WorkloadPort) (filterChains []*listenerv3.FilterChain) {
	mode := view.Security.Mutual
	if portMode, isSet := view.Security.MutualByPort[port.Target]; isSet {
		mode = portMode
	}
	var httpSocket, tcpSocket *corev3.TransportSocket
	if mode != model.Disabled {
		httpSocket = inboundMutual(view.Client, view.Security, "h2", "http/1.1")
		tcpSocket = inboundMutual(view.Client, view.Security, "istio-peer-exchange", "h2", "http/1.1")
	}
	if httpSocket == nil && (mode == model.Permissive || view.Security.Plaintext) {
		mode = model.Disabled
	}
	matches := inboundChains[mode].detected
	switch port.Protocol {
	case "":
	case "tcp":
		matches = inboundChains[mode].tcp
	default:
		matches = inboundChains[mode].http
	}
	serverTLSSettings := port.Ingress.GetTls()
	switch {
	case mode == model.Strict && httpSocket == nil:
		return []*listenerv3.FilterChain{refusing("refused", port.Target)}
	case serverTLSSettings == nil:
	case mode != model.Disabled:
		t.Findings.Note(port.Place.Subfield("tls"), "TLS ends there only where PeerAuthentication disables mutual TLS")
	case !canTerminate(serverTLSSettings):
		t.Findings.Note(port.Place.Subfield("tls"), "there is no certificate for it: connections are refused")
		return []*listenerv3.FilterChain{refusing("refused", port.Target)}
	default:
		httpSocket = t.downstreamTLS(serverTLSSettings, view.Client, view.Security.Domains, []string{"h2", "http/1.1"})
		tcpSocket = httpSocket
		matches = []inboundChain{{http: port.Protocol != "tcp", transport: transportTLS, terminates: true}}
	}
	for _, match := range matches {
		filterChain := inboundFilters(view, match, port)
		switch {
		case match.terminates && match.http:
			filterChain.TransportSocket = httpSocket
		case match.terminates:
			filterChain.TransportSocket = tcpSocket
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

// passthroughChains returns the filter chains of redirected connections to other ports than the workload's. They pass
// to their original address, except for those to the port of the listener itself, which would loop.
func (t *Translation) passthroughChains(view *model.View) []*listenerv3.FilterChain {
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
func inboundFilters(view *model.View, match inboundChain, port *model.WorkloadPort) *listenerv3.FilterChain {
	filterChain := &listenerv3.FilterChain{Name: virtualInbound, FilterChainMatch: &listenerv3.FilterChainMatch{
		TransportProtocol: match.transport, ApplicationProtocols: match.protocols,
	}}
	if port.Target != 0 {
		filterChain.FilterChainMatch.DestinationPort = wrapperspb.UInt32(port.Target)
	}
	cluster := model.InboundPassthrough
	stats := cluster
	switch {
	case port.Address != "":
		filterChain.Name = model.ListenerName(port.Address, port.Target)
		cluster = model.InboundName(port.Target)
		stats = "inbound_" + filterChain.GetName()
		if port.Ingress != nil {
			filterChain.Metadata = istioMetadata(map[string]*structpb.Value{"config": configValue("sidecar", port.Place.Object)})
		}
	case match.http:
		filterChain.Name += "-catchall-http"
	}
	filterChain.Filters = append(slices.Clip(view.Security.TCP), tcpProxy(cluster, view.Observability))
	if match.http {
		filterChain.Filters = managed(inboundManager(view, stats, cluster, port)).GetFilters()
	}
	filterChain.Filters = extend.WithPlugins(view.Patches, filterChain.GetFilters(), typev1beta1.WorkloadMode_SERVER,
		port.Target)
	return filterChain
}

// inboundManager returns the manager of requests that come to the workload.
func inboundManager(view *model.View, stats, cluster string, port *model.WorkloadPort) *hcmv3.HttpConnectionManager {
	manager := httpManager(model.StatName(stats), "", view.Observability)
	manager.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: inboundRoutes(cluster, port)}
	manager.ServerName = "istio-envoy"
	manager.ForwardClientCertDetails = hcmv3.HttpConnectionManager_APPEND_FORWARD
	manager.SetCurrentClientCertDetails = &hcmv3.HttpConnectionManager_SetCurrentClientCertDetails{
		Subject: wrapperspb.Bool(true), Uri: true, Dns: true,
	}
	if isHTTP2(port.Protocol) {
		manager.Http2ProtocolOptions = &corev3.Http2ProtocolOptions{}
	}
	if port.Protocol == "grpc-web" {
		grpcWeb := model.HTTPFilter("envoy.filters.http.grpc_web", &grpcwebv3.GrpcWeb{})
		manager.HttpFilters = append([]*hcmv3.HttpFilter{grpcWeb}, manager.GetHttpFilters()...)
	}
	secureHTTP(view, manager, typev1beta1.WorkloadMode_SERVER, port.Target)
	return manager
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
		Name:                                 name,
		Address:                              address,
		TrafficDirection:                     corev3.TrafficDirection_INBOUND,
		ContinueOnListenerFiltersTimeout:     true,
		ListenerFiltersTimeout:               durationpb.New(0),
		MaxConnectionsToAcceptPerSocketEvent: wrapperspb.UInt32(1),
		FilterChains:                         chains,
		ListenerFilters:                      inspectors(chains),
	}
}

// inspectors returns the listener filters that detect TLS and HTTP, for the ports where the match of a chain needs
// them: a connection to a port where the server speaks first would wait for them.
func inspectors(chains []*listenerv3.FilterChain) (filters []*listenerv3.ListenerFilter) {
	add := func(filter *listenerv3.ListenerFilter, needs func(*listenerv3.FilterChainMatch) bool) {
		needed := make(map[uint32]bool) // by port; 0 is all ports without chains of their own
		for _, chain := range chains {
			port := chain.GetFilterChainMatch().GetDestinationPort().GetValue()
			needed[port] = needed[port] || needs(chain.GetFilterChainMatch())
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
			filter.FilterDisabled = exceptions[0]
		case len(exceptions) > 1:
			filter.FilterDisabled = &listenerv3.ListenerFilterChainMatchPredicate{
				Rule: &listenerv3.ListenerFilterChainMatchPredicate_OrMatch{
					OrMatch: &listenerv3.ListenerFilterChainMatchPredicate_MatchSet{Rules: exceptions},
				},
			}
		}
		if !needed[0] { // the filter runs only on the exceptions
			filter.FilterDisabled = &listenerv3.ListenerFilterChainMatchPredicate{
				Rule: &listenerv3.ListenerFilterChainMatchPredicate_NotMatch{NotMatch: filter.GetFilterDisabled()},
			}
		}
		filters = append(filters, filter)
	}
	add(inspectTLS(), func(match *listenerv3.FilterChainMatch) bool {
		return match.GetTransportProtocol() == transportTLS
	})
	add(inspectHTTP(), func(match *listenerv3.FilterChainMatch) bool {
		return slices.Equal(match.GetApplicationProtocols(), plainHTTP)
	})
	return filters
}

// neverCleaned is the cleanup interval of istiod for inbound clusters: 292 years.
const neverCleaned = time.Duration((math.MaxInt64-999999999)/(1000*1000*1000)) * time.Second

// inboundCluster returns the cluster of a port of the workload.
func inboundCluster(view *model.View, port *model.WorkloadPort) *clusterv3.Cluster {
	name := model.InboundName(port.Target)
	cluster := &clusterv3.Cluster{
		Name:            name,
		AltStatName:     model.StatName(name),
		ConnectTimeout:  durationpb.New(connectTimeout),
		CircuitBreakers: unlimited(),
		CommonLbConfig:  &clusterv3.Cluster_CommonLbConfig{},
		Metadata:        inboundMetadata(view, port),
	}
	endpoint := port.Endpoint
	if port.Ingress == nil && view.Inbound.Localhost {
		endpoint = model.HostPort(model.Localhost, port.Target)
	}
	host, address := inboundAddress(endpoint)
	if address == nil {
		cluster.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST}
		cluster.LbPolicy = clusterv3.Cluster_CLUSTER_PROVIDED
		cluster.CleanupInterval = durationpb.New(neverCleaned)
	} else {
		cluster.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
		cluster.LoadAssignment = &endpointv3.ClusterLoadAssignment{
			ClusterName: name,
			Endpoints: []*endpointv3.LocalityLbEndpoints{{
				LbEndpoints: []*endpointv3.LbEndpoint{{
					HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: address}},
				}},
			}},
		}
	}
	if host != model.Localhost && host != "::1" {
		cluster.UpstreamBindConfig = fromLoop()
	}
	var options *httpv3.HttpProtocolOptions
	switch {
	case isHTTP2(port.Protocol):
		options = http2()
	case port.Protocol == "":
		options = &httpv3.HttpProtocolOptions{UpstreamProtocolOptions: asDownstream()}
	}
	portPolicy := port.Policy.On(port.Number, nil)
	policy := &networking.TrafficPolicy{
		ConnectionPool: cmp.Or(port.Pool, portPolicy.GetConnectionPool()),
		RetryBudget:    portPolicy.GetRetryBudget(),
	}
	if policy.GetConnectionPool().GetHttp() != nil {
		policy.ConnectionPool = proto.CloneOf(policy.GetConnectionPool())
		// The setting is for clients.
		policy.ConnectionPool.Http.H2UpgradePolicy = networking.ConnectionPoolSettings_HTTPSettings_DEFAULT
	}
	options = applyTrafficPolicy(policy, cluster, options)
	if options != nil {
		cluster.TypedExtensionProtocolOptions = map[string]*anypb.Any{HTTPOptions: model.ToAny(options)}
	}
	return cluster
}

// inboundAddress returns the address of the workload, or nil for the original address of connections.
func inboundAddress(endpoint string) (host string, address *corev3.Address) {
	if path, ok := strings.CutPrefix(endpoint, UnixPrefix); ok {
		return "", &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path}}}
	}
	addrPort, err := netip.ParseAddrPort(endpoint)
	host = addrPort.Addr().String()
	if err != nil || !resource.IsAddress(host) {
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

// inboundMetadata names the services of a port, and the DestinationRule of its first service.
func inboundMetadata(view *model.View, port *model.WorkloadPort) *corev3.Metadata {
	fields := make(map[string]*structpb.Value)
	if len(port.Hosts) > 0 && !port.External {
		fields["services"] = servicesValue(view.Client.Namespace, port.Hosts...)
	}
	if port.Policy.Name != "" {
		fields["config"] = configValue("destination-rule",
			resource.Key{Namespace: port.Policy.Namespace, Name: port.Policy.Name})
	}
	if len(fields) == 0 {
		return nil
	}
	return istioMetadata(fields)
}
