package translate

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/proxy_protocol/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/model"
)

// apply applies a policy to a cluster, and returns its options for HTTP, which may be nil before and after.
func apply(p *networking.TrafficPolicy, c *clusterv3.Cluster, h *httpv3.HttpProtocolOptions) *httpv3.HttpProtocolOptions {
	if p == nil {
		return h
	}
	h = applyConnections(p.GetConnectionPool(), c, h)
	applyOutliers(p.GetOutlierDetection(), c)
	applyBalancing(p.GetLoadBalancer(), c)
	if b := p.GetRetryBudget(); b != nil {
		budget := &clusterv3.CircuitBreakers_Thresholds_RetryBudget{
			BudgetPercent:       &typev3.Percent{Value: 0.2},
			MinRetryConcurrency: wrapperspb.UInt32(3),
		}
		if b.GetPercent() != nil {
			budget.BudgetPercent.Value = b.GetPercent().GetValue()
		}
		if b.GetMinRetryConcurrency() > 0 {
			budget.MinRetryConcurrency.Value = b.GetMinRetryConcurrency()
		}
		c.CircuitBreakers.Thresholds[0].RetryBudget = budget
	}
	return h
}

func applyConnections(p *networking.ConnectionPoolSettings, cluster *clusterv3.Cluster,
	h *httpv3.HttpProtocolOptions,
) *httpv3.HttpProtocolOptions {
	tcp, http := p.GetTcp(), p.GetHttp()
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
	if t := tcp.GetConnectTimeout(); t != nil {
		cluster.ConnectTimeout = t
	}
	if k := tcp.GetTcpKeepalive(); k != nil {
		keepalive := &corev3.TcpKeepalive{}
		if k.GetProbes() > 0 {
			keepalive.KeepaliveProbes = wrapperspb.UInt32(k.GetProbes())
		}
		if k.GetTime() != nil {
			keepalive.KeepaliveTime = wrapperspb.UInt32(uint32(k.GetTime().GetSeconds())) //nolint:gosec // validated
		}
		if k.GetInterval() != nil {
			keepalive.KeepaliveInterval = wrapperspb.UInt32(uint32(k.GetInterval().GetSeconds())) //nolint:gosec // validated
		}
		cluster.UpstreamConnectionOptions = &clusterv3.UpstreamConnectionOptions{TcpKeepalive: keepalive}
	}
	if http.GetH2UpgradePolicy() == networking.ConnectionPoolSettings_HTTPSettings_UPGRADE &&
		!http.GetUseClientProtocol() {
		h = http2()
	}
	idle := http.GetIdleTimeout()
	if idle == nil {
		idle = tcp.GetIdleTimeout()
	}
	common := &corev3.HttpProtocolOptions{IdleTimeout: idle, MaxConnectionDuration: tcp.GetMaxConnectionDuration()}
	if n := http.GetMaxRequestsPerConnection(); n > 0 {
		common.MaxRequestsPerConnection = wrapperspb.UInt32(uint32(n))
	}
	streams := http.GetMaxConcurrentStreams()
	if idle != nil || common.GetMaxConnectionDuration() != nil || common.GetMaxRequestsPerConnection() != nil ||
		streams > 0 {
		if h == nil {
			h = http1()
		}
		h.CommonHttpProtocolOptions = common
		if options := h.GetExplicitHttpConfig().GetHttp2ProtocolOptions(); options != nil && streams > 0 {
			options.MaxConcurrentStreams = wrapperspb.UInt32(uint32(streams))
		}
	}
	if http.GetUseClientProtocol() {
		if h == nil {
			h = http1()
		}
		h.UpstreamProtocolOptions = asDownstream()
	}
	return h
}

func applyOutliers(o *networking.OutlierDetection, cluster *clusterv3.Cluster) {
	if o == nil {
		return
	}
	d := &clusterv3.OutlierDetection{
		EnforcingSuccessRate: wrapperspb.UInt32(0), Interval: o.GetInterval(), BaseEjectionTime: o.GetBaseEjectionTime(),
		SplitExternalLocalOriginErrors: o.GetSplitExternalLocalOriginErrors(),
	}
	enforce := func(n *wrapperspb.UInt32Value) *wrapperspb.UInt32Value {
		if n.GetValue() > 0 {
			return wrapperspb.UInt32(100)
		}
		return wrapperspb.UInt32(0)
	}
	if n := o.GetConsecutive_5XxErrors(); n != nil {
		d.Consecutive_5Xx, d.EnforcingConsecutive_5Xx = n, enforce(n)
	}
	if n := o.GetConsecutiveGatewayErrors(); n != nil {
		d.ConsecutiveGatewayFailure, d.EnforcingConsecutiveGatewayFailure = n, enforce(n)
	}
	if n := o.GetMaxEjectionPercent(); n > 0 {
		d.MaxEjectionPercent = wrapperspb.UInt32(uint32(n))
	}
	if d.GetSplitExternalLocalOriginErrors() {
		if n := o.GetConsecutiveLocalOriginFailures(); n.GetValue() > 0 {
			d.ConsecutiveLocalOriginFailure, d.EnforcingConsecutiveLocalOriginFailure = n, enforce(n)
		}
		d.EnforcingLocalOriginSuccessRate = wrapperspb.UInt32(0)
	}
	cluster.OutlierDetection = d
	cluster.CommonLbConfig.HealthyPanicThreshold = &typev3.Percent{Value: float64(max(o.GetMinHealthPercent(), 0))}
}

func applyBalancing(lb *networking.LoadBalancerSettings, c *clusterv3.Cluster) {
	if c.GetType() == clusterv3.Cluster_ORIGINAL_DST {
		return
	}
	slow := slowStart(lb)
	switch lb.GetSimple() {
	case networking.LoadBalancerSettings_RANDOM:
		c.LbPolicy = clusterv3.Cluster_RANDOM
	case networking.LoadBalancerSettings_ROUND_ROBIN:
		c.LbPolicy = clusterv3.Cluster_ROUND_ROBIN
		if slow != nil {
			c.LbConfig = &clusterv3.Cluster_RoundRobinLbConfig_{RoundRobinLbConfig: &clusterv3.Cluster_RoundRobinLbConfig{SlowStartConfig: slow}}
		}
	case networking.LoadBalancerSettings_PASSTHROUGH:
		c.LbPolicy, c.LoadAssignment, c.EdsClusterConfig = clusterv3.Cluster_CLUSTER_PROVIDED, nil, nil
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST}
	default:
		if slow != nil {
			c.LbConfig = &clusterv3.Cluster_LeastRequestLbConfig_{
				LeastRequestLbConfig: &clusterv3.Cluster_LeastRequestLbConfig{SlowStartConfig: slow},
			}
		}
	}
	hash := lb.GetConsistentHash()
	if hash == nil {
		return
	}
	if m := hash.GetMaglev(); m != nil {
		c.LbPolicy, c.LbConfig = clusterv3.Cluster_MAGLEV, nil
		if m.GetTableSize() != 0 {
			c.LbConfig = &clusterv3.Cluster_MaglevLbConfig_{
				MaglevLbConfig: &clusterv3.Cluster_MaglevLbConfig{TableSize: wrapperspb.UInt64(m.GetTableSize())},
			}
		}
		return
	}
	c.LbPolicy, c.LbConfig = clusterv3.Cluster_RING_HASH, nil
	size := hash.GetRingHash().GetMinimumRingSize()
	if hash.GetRingHash() == nil {
		if size = hash.GetMinimumRingSize(); size == 0 { //nolint:staticcheck // the older way to say it
			size = 1024
		}
	}
	if size != 0 {
		c.LbConfig = &clusterv3.Cluster_RingHashLbConfig_{
			RingHashLbConfig: &clusterv3.Cluster_RingHashLbConfig{MinimumRingSize: wrapperspb.UInt64(min(size, MaxRing))},
		}
	}
}

// MaxRing is the maximum size of Envoy's hash rings.
const MaxRing = 8 << 20

// LargeRing is a ring size that takes Envoy about a second to build; for 9,000,000 Envoy 1.40 took 2.6 to 4.
const LargeRing = 2 << 20

// slowStart returns the warm-up of new endpoints, or nil.
func slowStart(lb *networking.LoadBalancerSettings) *clusterv3.Cluster_SlowStartConfig {
	w := lb.GetWarmup()
	if w == nil {
		if d := lb.GetWarmupDurationSecs(); d != nil { //nolint:staticcheck // the older way to say it
			return &clusterv3.Cluster_SlowStartConfig{SlowStartWindow: d}
		}
		return nil
	}
	aggression, least := 1.0, 10.0
	if a := w.GetAggression(); a != nil {
		aggression = a.GetValue()
	}
	if m := w.GetMinimumPercent(); m != nil {
		least = m.GetValue()
	}
	return &clusterv3.Cluster_SlowStartConfig{
		SlowStartWindow: w.GetDuration(), MinWeightPercent: &typev3.Percent{Value: least},
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
