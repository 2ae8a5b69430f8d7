package translate

import (
	"cmp"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/proxy_protocol/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/model"
)

// applyTrafficPolicy applies a policy to a cluster, and returns its options for HTTP, which may be nil before and
// after.
func applyTrafficPolicy(
	policy *networking.TrafficPolicy, cluster *clusterv3.Cluster, options *httpv3.HttpProtocolOptions,
) *httpv3.HttpProtocolOptions {
	if policy == nil {
		return options
	}
	options = applyConnectionPool(policy.GetConnectionPool(), cluster, options)
	applyOutlierDetection(policy.GetOutlierDetection(), cluster)
	applyLoadBalancer(policy.GetLoadBalancer(), cluster)
	if retryBudget := policy.GetRetryBudget(); retryBudget != nil {
		budget := &clusterv3.CircuitBreakers_Thresholds_RetryBudget{
			BudgetPercent: &typev3.Percent{Value: 20}, MinRetryConcurrency: wrapperspb.UInt32(3),
		}
		if interval := retryBudget.GetBudgetInterval(); interval.AsDuration() > 0 { // Envoy refuses others
			budget.BudgetInterval = model.Shortened(interval)
		}
		if retryBudget.GetPercent() != nil {
			budget.BudgetPercent.Value = retryBudget.GetPercent().GetValue()
		}
		if retryBudget.GetMinRetryConcurrency() > 0 {
			budget.MinRetryConcurrency.Value = retryBudget.GetMinRetryConcurrency()
		}
		cluster.CircuitBreakers.Thresholds[0].RetryBudget = budget
	}
	return options
}

func applyConnectionPool(pool *networking.ConnectionPoolSettings, cluster *clusterv3.Cluster,
	httpOptions *httpv3.HttpProtocolOptions,
) *httpv3.HttpProtocolOptions {
	tcp := pool.GetTcp()
	http := pool.GetHttp()
	limits := cluster.GetCircuitBreakers().GetThresholds()[0]
	limit := func(field **wrapperspb.UInt32Value, n int32) {
		if n > 0 {
			*field = wrapperspb.UInt32(uint32(n))
		}
	}
	limit(&limits.MaxConnections, tcp.GetMaxConnections())
	limit(&limits.MaxRequests, http.GetHttp2MaxRequests())
	limit(&limits.MaxPendingRequests, http.GetHttp1MaxPendingRequests())
	limit(&limits.MaxRetries, http.GetMaxRetries())
	if timeout := tcp.GetConnectTimeout(); timeout != nil {
		cluster.ConnectTimeout = model.Shortened(timeout)
	}
	if settings := tcp.GetTcpKeepalive(); settings != nil {
		keepalive := &corev3.TcpKeepalive{}
		if settings.GetProbes() > 0 {
			keepalive.KeepaliveProbes = wrapperspb.UInt32(settings.GetProbes())
		}
		if settings.GetTime() != nil {
			keepalive.KeepaliveTime = wrapperspb.UInt32(uint32(settings.GetTime().GetSeconds())) //nolint:gosec // validated
		}
		if settings.GetInterval() != nil {
			interval := uint32(settings.GetInterval().GetSeconds()) //nolint:gosec // validated
			keepalive.KeepaliveInterval = wrapperspb.UInt32(interval)
		}
		cluster.UpstreamConnectionOptions = &clusterv3.UpstreamConnectionOptions{TcpKeepalive: keepalive}
	}
	if http.GetH2UpgradePolicy() == networking.ConnectionPoolSettings_HTTPSettings_UPGRADE &&
		!http.GetUseClientProtocol() {
		httpOptions = http2()
	}
	idle := http.GetIdleTimeout()
	if idle == nil {
		idle = tcp.GetIdleTimeout()
	}
	common := &corev3.HttpProtocolOptions{
		IdleTimeout: model.Shortened(idle), MaxConnectionDuration: model.Shortened(tcp.GetMaxConnectionDuration()),
	}
	if n := http.GetMaxRequestsPerConnection(); n > 0 {
		common.MaxRequestsPerConnection = wrapperspb.UInt32(uint32(n))
	}
	streams := http.GetMaxConcurrentStreams()
	if idle != nil || common.GetMaxConnectionDuration() != nil || common.GetMaxRequestsPerConnection() != nil ||
		streams > 0 {
		if httpOptions == nil {
			httpOptions = http1()
		}
		httpOptions.CommonHttpProtocolOptions = common
		if options := httpOptions.GetExplicitHttpConfig().GetHttp2ProtocolOptions(); options != nil && streams > 0 {
			options.MaxConcurrentStreams = wrapperspb.UInt32(uint32(streams))
		}
	}
	if http.GetUseClientProtocol() {
		if httpOptions == nil {
			httpOptions = http1()
		}
		httpOptions.UpstreamProtocolOptions = asDownstream()
	}
	return httpOptions
}

func applyOutlierDetection(settings *networking.OutlierDetection, cluster *clusterv3.Cluster) {
	if settings == nil {
		return
	}
	detection := &clusterv3.OutlierDetection{
		EnforcingSuccessRate: wrapperspb.UInt32(0), Interval: model.Shortened(settings.GetInterval()),
		BaseEjectionTime:               model.Shortened(settings.GetBaseEjectionTime()),
		SplitExternalLocalOriginErrors: settings.GetSplitExternalLocalOriginErrors(),
	}
	enforce := func(n *wrapperspb.UInt32Value) *wrapperspb.UInt32Value {
		if n.GetValue() > 0 {
			return wrapperspb.UInt32(100)
		}
		return wrapperspb.UInt32(0)
	}
	if n := settings.GetConsecutive_5XxErrors(); n != nil {
		detection.Consecutive_5Xx = n
		detection.EnforcingConsecutive_5Xx = enforce(n)
	}
	if n := settings.GetConsecutiveGatewayErrors(); n != nil {
		detection.ConsecutiveGatewayFailure = n
		detection.EnforcingConsecutiveGatewayFailure = enforce(n)
	}
	if n := settings.GetMaxEjectionPercent(); n > 0 {
		detection.MaxEjectionPercent = wrapperspb.UInt32(uint32(n))
	}
	if detection.GetSplitExternalLocalOriginErrors() {
		if n := settings.GetConsecutiveLocalOriginFailures(); n.GetValue() > 0 {
			detection.ConsecutiveLocalOriginFailure = n
			detection.EnforcingConsecutiveLocalOriginFailure = enforce(n)
		}
		detection.EnforcingLocalOriginSuccessRate = wrapperspb.UInt32(0)
	}
	cluster.OutlierDetection = detection
	cluster.CommonLbConfig.HealthyPanicThreshold = &typev3.Percent{Value: float64(max(settings.GetMinHealthPercent(), 0))}
}

func applyLoadBalancer(balancer *networking.LoadBalancerSettings, cluster *clusterv3.Cluster) {
	if cluster.GetType() == clusterv3.Cluster_ORIGINAL_DST {
		return
	}
	slow := slowStart(balancer)
	switch balancer.GetSimple() {
	case networking.LoadBalancerSettings_RANDOM:
		cluster.LbPolicy = clusterv3.Cluster_RANDOM
	case networking.LoadBalancerSettings_ROUND_ROBIN:
		cluster.LbPolicy = clusterv3.Cluster_ROUND_ROBIN
		if slow != nil {
			cluster.LbConfig = &clusterv3.Cluster_RoundRobinLbConfig_{
				RoundRobinLbConfig: &clusterv3.Cluster_RoundRobinLbConfig{SlowStartConfig: slow},
			}
		}
	case networking.LoadBalancerSettings_PASSTHROUGH:
		cluster.LbPolicy = clusterv3.Cluster_CLUSTER_PROVIDED
		cluster.LoadAssignment = nil
		cluster.EdsClusterConfig = nil
		cluster.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST}
	default:
		if slow != nil {
			cluster.LbConfig = &clusterv3.Cluster_LeastRequestLbConfig_{
				LeastRequestLbConfig: &clusterv3.Cluster_LeastRequestLbConfig{SlowStartConfig: slow},
			}
		}
	}
	hash := balancer.GetConsistentHash()
	if hash == nil {
		return
	}
	if maglev := hash.GetMaglev(); maglev != nil {
		cluster.LbPolicy = clusterv3.Cluster_MAGLEV
		cluster.LbConfig = nil
		if maglev.GetTableSize() != 0 {
			cluster.LbConfig = &clusterv3.Cluster_MaglevLbConfig_{
				MaglevLbConfig: &clusterv3.Cluster_MaglevLbConfig{TableSize: wrapperspb.UInt64(maglev.GetTableSize())},
			}
		}
		return
	}
	cluster.LbPolicy = clusterv3.Cluster_RING_HASH
	cluster.LbConfig = nil
	size := hash.GetRingHash().GetMinimumRingSize()
	if hash.GetRingHash() == nil {
		size = cmp.Or(hash.GetMinimumRingSize(), 1024) //nolint:staticcheck // the older way to say it
	}
	if size != 0 {
		cluster.LbConfig = &clusterv3.Cluster_RingHashLbConfig_{
			RingHashLbConfig: &clusterv3.Cluster_RingHashLbConfig{MinimumRingSize: wrapperspb.UInt64(min(size, MaxRing))},
		}
	}
}

// MaxRing is the maximum size of Envoy's hash rings.
const MaxRing = 8 << 20

// LargeRing is a ring size that takes Envoy about a second to build; for 9,000,000 Envoy 1.40 took 2.6 to 4.
const LargeRing = 2 << 20

// slowStart returns the warm-up of new endpoints, or nil.
func slowStart(balancer *networking.LoadBalancerSettings) *clusterv3.Cluster_SlowStartConfig {
	warmup := balancer.GetWarmup()
	if warmup == nil {
		if d := balancer.GetWarmupDurationSecs(); d != nil { //nolint:staticcheck // the older way to say it
			return &clusterv3.Cluster_SlowStartConfig{SlowStartWindow: model.Shortened(d)}
		}
		return nil
	}
	aggression, least := 1.0, 10.0
	if a := warmup.GetAggression(); a != nil {
		aggression = a.GetValue()
	}
	if m := warmup.GetMinimumPercent(); m != nil {
		least = m.GetValue()
	}
	return &clusterv3.Cluster_SlowStartConfig{
		SlowStartWindow: model.Shortened(warmup.GetDuration()), MinWeightPercent: &typev3.Percent{Value: least},
		Aggression: &corev3.RuntimeDouble{DefaultValue: aggression, RuntimeKey: "("}, // a key that no runtime can set
	}
}

// sendProxyProtocol has connections to a cluster begin with PROXY protocol.
func sendProxyProtocol(setting *networking.TrafficPolicy_ProxyProtocol, cluster *clusterv3.Cluster) {
	if setting == nil {
		return
	}
	wrap := func(socket *corev3.TransportSocket) *corev3.TransportSocket {
		config := model.ToAny(&proxyprotocolv3.ProxyProtocolUpstreamTransport{
			Config:          &corev3.ProxyProtocolConfig{Version: corev3.ProxyProtocolConfig_Version(setting.GetVersion())},
			TransportSocket: socket,
		})
		return &corev3.TransportSocket{
			Name:       "envoy.transport_sockets.upstream_proxy_protocol",
			ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: config},
		}
	}
	for _, match := range cluster.GetTransportSocketMatches() {
		match.TransportSocket = wrap(match.GetTransportSocket())
	}
	switch {
	case cluster.GetTransportSocket() != nil:
		cluster.TransportSocket = wrap(cluster.GetTransportSocket())
	case len(cluster.GetTransportSocketMatches()) == 0:
		plaintext := plaintextSocket()
		plaintext.Name = "raw_buffer" // as in istiod
		cluster.TransportSocket = wrap(plaintext)
	}
}
