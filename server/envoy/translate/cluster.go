package translate

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
	"tributary/server/envoy/model"
)

// Istio's defaults.
const (
	connectTimeout = 10 * time.Second
	dnsRefreshRate = 60 * time.Second
	dnsJitter      = 100 * time.Millisecond
	dnsMaxQueries  = 100 // of one UDP socket
	idleTimeout    = 5 * time.Minute
)

// HTTPOptions is the name of the extension of a cluster for HTTP.
const HTTPOptions = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

// cluster returns the cluster of a port of a service, or of a subset of it.
func (t *Translation) cluster(
	view *model.View, port *model.Port, subset *networking.Subset, placed placement,
) *clusterv3.Cluster {
	service := view.Service
	policies := &view.Policy
	policy := policies.On(port.Number, subset)
	role := placed.client.Role
	name := model.ClusterName(port.Number, subset.GetName(), service.Host)
	cluster := &clusterv3.Cluster{
		Name:            name,
		AltStatName:     model.StatName(name),
		ConnectTimeout:  durationpb.New(connectTimeout),
		CommonLbConfig:  &clusterv3.Cluster_CommonLbConfig{},
		LbPolicy:        clusterv3.Cluster_LEAST_REQUEST,
		CircuitBreakers: unlimited(),
		Metadata:        metadata(service, subset, policies),
	}
	kind := discoveryType(port, subset, role)
	if role != model.Proxyless && subset != nil &&
		(isPassthrough(subset.GetTrafficPolicy()) || isPassthrough(policies.On(port.Number, nil))) {
		kind = clusterv3.Cluster_ORIGINAL_DST
	}
	t.setDiscovery(cluster, kind, view, port, subset, placed)
	if role == model.Proxyless {
		cluster.LbPolicy = clusterv3.Cluster_ROUND_ROBIN
	}
	var options *httpv3.HttpProtocolOptions
	switch {
	case port.Protocol == model.ProtocolHTTP2:
		options = http2()
	case port.Protocol == model.ProtocolDetected && role == model.Sidecar:
		options = &httpv3.HttpProtocolOptions{UpstreamProtocolOptions: asDownstream()}
	}
	options = applyTrafficPolicy(policy, cluster, options)
	options = t.upstreamTLS(policy.GetTls(), cluster, options, placed.client, service)
	setMutualTLS(view, port, subset, cluster, options)
	sendProxyProtocol(policy.GetProxyProtocol(), cluster)
	placed.enableLocalityWeights(cluster)
	placed.health.addTo(cluster, policy, &t.Findings)
	if options != nil {
		cluster.TypedExtensionProtocolOptions = map[string]*anypb.Any{HTTPOptions: model.ToAny(options)}
	}
	if role == model.Proxyless {
		return grpcCluster(cluster)
	}
	return cluster
}

// grpcCluster returns the part of a cluster that gRPC clients read.
func grpcCluster(cluster *clusterv3.Cluster) *clusterv3.Cluster {
	proxyless := &clusterv3.Cluster{
		Name:                 cluster.GetName(),
		AltStatName:          cluster.GetAltStatName(),
		ClusterDiscoveryType: cluster.GetClusterDiscoveryType(),
		EdsClusterConfig:     cluster.GetEdsClusterConfig(),
		LoadAssignment:       cluster.GetLoadAssignment(),
		OutlierDetection:     cluster.GetOutlierDetection(),
	}
	if cluster.GetLbPolicy() == clusterv3.Cluster_RING_HASH || cluster.GetLbPolicy() == clusterv3.Cluster_LEAST_REQUEST {
		proxyless.LbPolicy = cluster.GetLbPolicy()
		proxyless.LbConfig = cluster.GetLbConfig()
	}
	requests := cluster.GetCircuitBreakers().GetThresholds()[0].GetMaxRequests()
	if requests.GetValue() != math.MaxUint32 {
		proxyless.CircuitBreakers = &clusterv3.CircuitBreakers{
			Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{MaxRequests: requests}},
		}
	}
	return proxyless
}

// isPassthrough reports whether a policy sends connections to their original address.
func isPassthrough(p *networking.TrafficPolicy) bool {
	return p.GetLoadBalancer().GetSimple() == networking.LoadBalancerSettings_PASSTHROUGH
}

// setDiscovery sets the cluster's discovery type, and its endpoints or their source.
func (t *Translation) setDiscovery(
	cluster *clusterv3.Cluster, kind clusterv3.Cluster_DiscoveryType, view *model.View, port *model.Port,
	subset *networking.Subset, placed placement,
) {
	switch kind {
	case clusterv3.Cluster_STRICT_DNS, clusterv3.Cluster_LOGICAL_DNS:
		cluster.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: kind}
		encoded := assignment(port, cluster.GetName(), subset, kind, placed, &t.Findings)
		cluster.LoadAssignment = decodedAssignment(encoded)
		if len(cluster.GetLoadAssignment().GetEndpoints()) == 0 {
			// LOGICAL_DNS needs exactly one.
			cluster.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STRICT_DNS}
		}
		if placed.client.Role != model.Proxyless {
			cluster.DnsLookupFamily = clusterv3.Cluster_V4_ONLY
			cluster.DnsRefreshRate = durationpb.New(dnsRefreshRate) //nolint:staticcheck // as istiod does
			cluster.RespectDnsTtl = true                            //nolint:staticcheck // as istiod does
			cluster.DnsJitter = durationpb.New(dnsJitter)           //nolint:staticcheck // as istiod does
			cluster.TypedDnsResolverConfig = &corev3.TypedExtensionConfig{
				Name:        "envoy.network.dns_resolver.cares",
				TypedConfig: model.ToAny(&caresv3.CaresDnsResolverConfig{UdpMaxQueries: wrapperspb.UInt32(dnsMaxQueries)}),
			}
		}
	case clusterv3.Cluster_ORIGINAL_DST:
		cluster.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: kind}
		cluster.LbPolicy = clusterv3.Cluster_CLUSTER_PROVIDED
		// Passthrough by a DestinationRule keeps the original port.
		if port.Target != 0 && view.Service.Resolution == networking.ServiceEntry_NONE {
			cluster.LbConfig = &clusterv3.Cluster_OriginalDstLbConfig_{
				OriginalDstLbConfig: &clusterv3.Cluster_OriginalDstLbConfig{
					UpstreamPortOverride: wrapperspb.UInt32(port.Target),
				},
			}
		}
	default:
		discoverEndpoints(cluster)
	}
}

func discoverEndpoints(c *clusterv3.Cluster) {
	c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}
	c.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{ServiceName: c.GetName(), EdsConfig: Ads()}
}

// discoveryType returns the discovery type of a port or subset. A gRPC client resolves one name of a cluster, and
// refuses all other DNS clusters. Only a sidecar knows the original addresses of connections.
func discoveryType(port *model.Port, subset *networking.Subset, role model.Role) clusterv3.Cluster_DiscoveryType {
	switch {
	case model.IsDNS(port.Resolution) && role == model.Proxyless:
		if hasNames(port, subset) {
			return clusterv3.Cluster_LOGICAL_DNS
		}
	case port.Resolution == networking.ServiceEntry_DNS:
		return clusterv3.Cluster_STRICT_DNS
	case port.Resolution == networking.ServiceEntry_DNS_ROUND_ROBIN:
		return clusterv3.Cluster_LOGICAL_DNS
	case port.Resolution == networking.ServiceEntry_NONE && role == model.Sidecar:
		return clusterv3.Cluster_ORIGINAL_DST
	}
	return clusterv3.Cluster_EDS
}

// metadata returns the metadata of a cluster, for Istio's telemetry and tools.
func metadata(service *model.Service, subset *networking.Subset, policy *model.Policy) *corev3.Metadata {
	fields := map[string]*structpb.Value{"services": servicesValue(service.Namespace, service.Host)}
	switch {
	case subset != nil:
		fields["subset"] = structpb.NewStringValue(subset.GetName())
	case service.External:
		fields["external"] = structpb.NewBoolValue(true)
	}
	if policy.Name != "" {
		fields["config"] = configValue("destination-rule", resource.Key{Namespace: policy.Namespace, Name: policy.Name})
	}
	return istioMetadata(fields)
}

// virtualServiceMetadata names a VirtualService.
func virtualServiceMetadata(key resource.Key) *corev3.Metadata {
	return istioMetadata(map[string]*structpb.Value{"config": configValue("virtual-service", key)})
}

// configValue names the object that a resource is made of.
func configValue(kind string, key resource.Key) *structpb.Value {
	return structpb.NewStringValue("/apis/networking.istio.io/v1/namespaces/" + key.Namespace + "/" + kind +
		"/" + key.Name)
}

// servicesValue names services of a namespace.
func servicesValue(namespace string, hosts ...string) *structpb.Value {
	values := &structpb.ListValue{}
	for _, host := range hosts {
		values.Values = append(values.Values, structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
			"host": structpb.NewStringValue(host), "name": structpb.NewStringValue(host),
			"namespace": structpb.NewStringValue(namespace),
		}}))
	}
	return structpb.NewListValue(values)
}

func istioMetadata(fields map[string]*structpb.Value) *corev3.Metadata {
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"istio": {Fields: fields}}}
}

// unlimited returns circuit breakers that never open; Envoy's defaults open at 1,024.
func unlimited() *clusterv3.CircuitBreakers {
	noLimit := wrapperspb.UInt32(math.MaxUint32)
	return &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
		MaxConnections: noLimit, MaxPendingRequests: noLimit, MaxRequests: noLimit, MaxRetries: noLimit, TrackRemaining: true,
	}}}
}

func http1() *httpv3.HttpProtocolOptions {
	return &httpv3.HttpProtocolOptions{UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
		ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
			ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{
				HttpProtocolOptions: &corev3.Http1ProtocolOptions{},
			},
		},
	}}
}

// asDownstream uses the client's protocol to the endpoint.
func asDownstream() *httpv3.HttpProtocolOptions_UseDownstreamProtocolConfig {
	config := &httpv3.HttpProtocolOptions_UseDownstreamHttpConfig{
		HttpProtocolOptions: &corev3.Http1ProtocolOptions{}, Http2ProtocolOptions: &corev3.Http2ProtocolOptions{},
	}
	return &httpv3.HttpProtocolOptions_UseDownstreamProtocolConfig{UseDownstreamProtocolConfig: config}
}

func http2() *httpv3.HttpProtocolOptions {
	return &httpv3.HttpProtocolOptions{UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
		ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
			ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
				Http2ProtocolOptions: &corev3.Http2ProtocolOptions{},
			},
		},
	}}
}

// Ads requests a resource on the stream of the resource that names it.
func Ads() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		InitialFetchTimeout:   durationpb.New(0), ResourceApiVersion: corev3.ApiVersion_V3,
	}
}

// SidecarClusters returns the clusters that every sidecar has.
func SidecarClusters() []*clusterv3.Cluster {
	return []*clusterv3.Cluster{
		{
			Name: model.BlackHole, AltStatName: model.StatName(model.BlackHole), ConnectTimeout: durationpb.New(connectTimeout),
			ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		},
		passthrough(),
	}
}

// passthrough returns the cluster of connections to their original address.
func passthrough() *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name: model.Passthrough, AltStatName: model.StatName(model.Passthrough),
		ConnectTimeout:       durationpb.New(connectTimeout),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST},
		LbPolicy:             clusterv3.Cluster_CLUSTER_PROVIDED, CircuitBreakers: unlimited(),
		TypedExtensionProtocolOptions: map[string]*anypb.Any{HTTPOptions: model.ToAny(&httpv3.HttpProtocolOptions{
			CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{IdleTimeout: durationpb.New(idleTimeout)},
			UpstreamProtocolOptions:   asDownstream(),
		})},
	}
}
