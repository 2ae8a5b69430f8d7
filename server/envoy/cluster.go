package envoy

import (
	"math"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	caresv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/network/dns_resolver/cares/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// Istio's defaults.
const (
	connectTimeout = 10 * time.Second
	dnsRefreshRate = 60 * time.Second
	dnsJitter      = 100 * time.Millisecond
	dnsMaxQueries  = 100 // of one UDP socket
	idleTimeout    = 5 * time.Minute
)

const httpOptions = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

// cluster returns the cluster of a port of a service, or of a subset of it.
func (t *told) cluster(s *service, p *port, subset *networking.Subset, policies *policy, client profile) *clusterv3.Cluster {
	policy := policies.on(p.number, subset)
	role, placed := client.role, placementOf(client, policy)
	name := clusterName(p.number, subset.GetName(), s.host)
	c := &clusterv3.Cluster{
		Name: name, AltStatName: statName(name), ConnectTimeout: durationpb.New(connectTimeout), CommonLbConfig: &clusterv3.Cluster_CommonLbConfig{},
		LbPolicy: clusterv3.Cluster_LEAST_REQUEST, CircuitBreakers: unlimited(), Metadata: s.metadata(subset, policies),
	}
	kind := s.discovery(p, subset, role)
	if role != proxyless && subset != nil && (passesOn(subset.GetTrafficPolicy()) || passesOn(policies.on(p.number, nil))) {
		kind = clusterv3.Cluster_ORIGINAL_DST
	}
	s.discover(c, kind, p, subset, placed, &t.findings)
	if role == proxyless {
		c.LbPolicy = clusterv3.Cluster_ROUND_ROBIN
	}
	var options *httpv3.HttpProtocolOptions
	if p.protocol == protocolHTTP2 {
		options = http2()
	}
	options = apply(policy, c, options)
	options = t.originate(policy.GetTls(), c, options, client)
	placed.apply(c)
	if options != nil {
		c.TypedExtensionProtocolOptions = map[string]*anypb.Any{httpOptions: toAny(options)}
	}
	if role == proxyless {
		return understood(c)
	}
	return c
}

// understood returns what a gRPC client reads of a cluster.
func understood(c *clusterv3.Cluster) *clusterv3.Cluster {
	u := &clusterv3.Cluster{
		Name: c.GetName(), AltStatName: c.GetAltStatName(), ClusterDiscoveryType: c.GetClusterDiscoveryType(), EdsClusterConfig: c.GetEdsClusterConfig(),
		LoadAssignment: c.GetLoadAssignment(), OutlierDetection: c.GetOutlierDetection(),
	}
	if c.GetLbPolicy() == clusterv3.Cluster_RING_HASH || c.GetLbPolicy() == clusterv3.Cluster_LEAST_REQUEST {
		u.LbPolicy, u.LbConfig = c.GetLbPolicy(), c.GetLbConfig()
	}
	if n := c.GetCircuitBreakers().GetThresholds()[0].GetMaxRequests(); n.GetValue() != math.MaxUint32 {
		u.CircuitBreakers = &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{MaxRequests: n}}}
	}
	return u
}

// passesOn says whether a policy has connections go where they were meant to go.
func passesOn(p *networking.TrafficPolicy) bool {
	return p.GetLoadBalancer().GetSimple() == networking.LoadBalancerSettings_PASSTHROUGH
}

// discover says how the endpoints of a cluster are found, which is of a kind.
func (s *service) discover(c *clusterv3.Cluster, kind clusterv3.Cluster_DiscoveryType, p *port, subset *networking.Subset, placed placement, found *findings) {
	role := placed.client.role
	switch kind {
	case clusterv3.Cluster_STRICT_DNS, clusterv3.Cluster_LOGICAL_DNS:
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: kind}
		c.LoadAssignment = decodedAssignment(p.assignment(c.GetName(), subset, kind, placed, found))
		if len(c.GetLoadAssignment().GetEndpoints()) == 0 {
			c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STRICT_DNS} // the other kind has exactly one
		}
		if role != proxyless {
			c.DnsLookupFamily = clusterv3.Cluster_V4_ONLY
			c.DnsRefreshRate = durationpb.New(dnsRefreshRate) //nolint:staticcheck // as istiod does
			c.RespectDnsTtl = true                            //nolint:staticcheck // as istiod does
			c.DnsJitter = durationpb.New(dnsJitter)           //nolint:staticcheck // as istiod does
			c.TypedDnsResolverConfig = &corev3.TypedExtensionConfig{
				Name:        "envoy.network.dns_resolver.cares",
				TypedConfig: toAny(&caresv3.CaresDnsResolverConfig{UdpMaxQueries: wrapperspb.UInt32(dnsMaxQueries)}),
			}
		}
	case clusterv3.Cluster_ORIGINAL_DST:
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: kind}
		c.LbPolicy = clusterv3.Cluster_CLUSTER_PROVIDED
		if p.target != 0 && s.resolution == networking.ServiceEntry_NONE { // what passes on for a rule keeps the port that was asked for
			c.LbConfig = &clusterv3.Cluster_OriginalDstLbConfig_{OriginalDstLbConfig: &clusterv3.Cluster_OriginalDstLbConfig{
				UpstreamPortOverride: wrapperspb.UInt32(p.target),
			}}
		}
	default:
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}
		c.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{ServiceName: c.GetName(), EdsConfig: ads()}
	}
}

// discovery says how the endpoints of a port, or of a subset of it, are found. A gRPC client resolves one name of a cluster, and refuses all other
// clusters of names. Only a sidecar has addresses that connections were meant for.
func (s *service) discovery(p *port, subset *networking.Subset, role role) clusterv3.Cluster_DiscoveryType {
	switch {
	case isDNS(s.resolution) && role == proxyless:
		if p.hasNames(subset) {
			return clusterv3.Cluster_LOGICAL_DNS
		}
	case s.resolution == networking.ServiceEntry_DNS:
		return clusterv3.Cluster_STRICT_DNS
	case s.resolution == networking.ServiceEntry_DNS_ROUND_ROBIN:
		return clusterv3.Cluster_LOGICAL_DNS
	case s.resolution == networking.ServiceEntry_NONE && role == sidecar:
		return clusterv3.Cluster_ORIGINAL_DST
	}
	return clusterv3.Cluster_EDS
}

// metadata is what Istio's telemetry and tools read from a cluster.
func (s *service) metadata(subset *networking.Subset, policy *policy) *corev3.Metadata {
	fields := map[string]*structpb.Value{
		"services": structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{
			structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
				"host": structpb.NewStringValue(s.host), "name": structpb.NewStringValue(s.host), "namespace": structpb.NewStringValue(s.namespace),
			}}),
		}}),
	}
	switch {
	case subset != nil:
		fields["subset"] = structpb.NewStringValue(subset.GetName())
	case s.external:
		fields["external"] = structpb.NewBoolValue(true)
	}
	if policy.name != "" {
		fields["config"] = structpb.NewStringValue("/apis/networking.istio.io/v1/namespaces/" + policy.namespace + "/destination-rule/" + policy.name)
	}
	return istioMetadata(fields)
}

// ofVirtualService says which VirtualService something is of.
func ofVirtualService(key resource.Key) *corev3.Metadata {
	return istioMetadata(map[string]*structpb.Value{
		"config": structpb.NewStringValue("/apis/networking.istio.io/v1/namespaces/" + key.Namespace + "/virtual-service/" + key.Name),
	})
}

func istioMetadata(fields map[string]*structpb.Value) *corev3.Metadata {
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"istio": {Fields: fields}}}
}

// unlimited are circuit breakers that never open, where Envoy's own would at 1,024.
func unlimited() *clusterv3.CircuitBreakers {
	most := wrapperspb.UInt32(math.MaxUint32)
	return &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
		MaxConnections: most, MaxPendingRequests: most, MaxRequests: most, MaxRetries: most, TrackRemaining: true,
	}}}
}

func http1() *httpv3.HttpProtocolOptions {
	return &httpv3.HttpProtocolOptions{UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
		ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
			ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{HttpProtocolOptions: &corev3.Http1ProtocolOptions{}},
		},
	}}
}

// asDownstream speaks to the endpoint as the client spoke.
func asDownstream() *httpv3.HttpProtocolOptions_UseDownstreamProtocolConfig {
	return &httpv3.HttpProtocolOptions_UseDownstreamProtocolConfig{UseDownstreamProtocolConfig: &httpv3.HttpProtocolOptions_UseDownstreamHttpConfig{
		HttpProtocolOptions: &corev3.Http1ProtocolOptions{}, Http2ProtocolOptions: &corev3.Http2ProtocolOptions{},
	}}
}

func http2() *httpv3.HttpProtocolOptions {
	return &httpv3.HttpProtocolOptions{UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
		ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
			ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{Http2ProtocolOptions: &corev3.Http2ProtocolOptions{}},
		},
	}}
}

// ads says that a resource is to be asked for on the stream on which the one that names it came.
func ads() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		InitialFetchTimeout:   durationpb.New(0), ResourceApiVersion: corev3.ApiVersion_V3,
	}
}

// common are the clusters that every sidecar has.
func common() []*clusterv3.Cluster {
	return []*clusterv3.Cluster{
		{
			Name: blackHole, AltStatName: statName(blackHole), ConnectTimeout: durationpb.New(connectTimeout),
			ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		},
		{
			Name: passthrough, AltStatName: statName(passthrough), ConnectTimeout: durationpb.New(connectTimeout),
			ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST},
			LbPolicy:             clusterv3.Cluster_CLUSTER_PROVIDED, CircuitBreakers: unlimited(),
			TypedExtensionProtocolOptions: map[string]*anypb.Any{httpOptions: toAny(&httpv3.HttpProtocolOptions{
				CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{IdleTimeout: durationpb.New(idleTimeout)},
				UpstreamProtocolOptions:   asDownstream(),
			})},
		},
	}
}
