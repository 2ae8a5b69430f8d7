package e2e

import (
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"
)

func (r *randomMesh) policy() *networking.DestinationRule {
	d := &networking.DestinationRule{Host: r.pick(append(besideHosts, "*.internal")...), TrafficPolicy: r.traffic()}
	for _, name := range []string{"v1", "v2"} {
		if r.seldom(2) {
			d.Subsets = append(d.Subsets, &networking.Subset{Name: name, Labels: map[string]string{"version": name}, TrafficPolicy: r.traffic()})
		}
	}
	if r.seldom(4) {
		d.ExportTo = []string{r.pick(".", "*", "shop")}
	}
	return d
}

func (r *randomMesh) traffic() *networking.TrafficPolicy {
	if r.seldom(4) {
		return nil
	}
	p := &networking.TrafficPolicy{}
	if r.seldom(2) {
		p.LoadBalancer = r.balancer()
	}
	if r.seldom(2) {
		p.ConnectionPool = r.pool()
	}
	if r.seldom(2) {
		p.OutlierDetection = r.outliers()
	}
	if r.seldom(4) {
		detection := r.outliers()
		lb := r.balancer()
		r.hashed = r.hashed || lb.GetConsistentHash() != nil
		p.PortLevelSettings = []*networking.TrafficPolicy_PortTrafficPolicy{{
			Port: &networking.PortSelector{Number: 80}, OutlierDetection: detection, LoadBalancer: lb, ConnectionPool: r.pool(),
		}}
	}
	return p
}

func (r *randomMesh) balancer() *networking.LoadBalancerSettings {
	if r.often(2) {
		return &networking.LoadBalancerSettings{LbPolicy: &networking.LoadBalancerSettings_Simple{
			Simple: []networking.LoadBalancerSettings_SimpleLB{
				networking.LoadBalancerSettings_UNSPECIFIED, networking.LoadBalancerSettings_LEAST_REQUEST, networking.LoadBalancerSettings_RANDOM,
				networking.LoadBalancerSettings_ROUND_ROBIN, networking.LoadBalancerSettings_PASSTHROUGH,
			}[r.IntN(5)],
		}}
	}
	h := &networking.LoadBalancerSettings_ConsistentHashLB{}
	switch r.IntN(4) {
	case 0:
		h.HashKey = &networking.LoadBalancerSettings_ConsistentHashLB_HttpHeaderName{HttpHeaderName: r.pick("x-one", "x-two")}
	case 1:
		h.HashKey = &networking.LoadBalancerSettings_ConsistentHashLB_UseSourceIp{UseSourceIp: true}
	case 2:
		h.HashKey = &networking.LoadBalancerSettings_ConsistentHashLB_HttpQueryParameterName{HttpQueryParameterName: "q"}
	default:
		h.HashKey = &networking.LoadBalancerSettings_ConsistentHashLB_HttpCookie{
			HttpCookie: &networking.LoadBalancerSettings_ConsistentHashLB_HTTPCookie{Name: "c", Path: r.pick("", "/p"), Ttl: r.duration(0, 60)},
		}
	}
	switch r.IntN(3) {
	case 0:
		h.HashAlgorithm = &networking.LoadBalancerSettings_ConsistentHashLB_Maglev{
			Maglev: &networking.LoadBalancerSettings_ConsistentHashLB_MagLev{TableSize: r.Uint64N(2) * 1009},
		}
	case 1:
		h.HashAlgorithm = &networking.LoadBalancerSettings_ConsistentHashLB_RingHash_{
			RingHash: &networking.LoadBalancerSettings_ConsistentHashLB_RingHash{MinimumRingSize: r.Uint64N(2) * 2048},
		}
	}
	return &networking.LoadBalancerSettings{LbPolicy: &networking.LoadBalancerSettings_ConsistentHash{ConsistentHash: h}}
}

func (r *randomMesh) pool() *networking.ConnectionPoolSettings {
	p := &networking.ConnectionPoolSettings{}
	if r.often(3) {
		p.Tcp = &networking.ConnectionPoolSettings_TCPSettings{
			MaxConnections: r.Int32N(3), ConnectTimeout: r.duration(1, 2),
			IdleTimeout: r.duration(3, 30),
		}
		if r.seldom(2) {
			p.Tcp.TcpKeepalive = &networking.ConnectionPoolSettings_TCPSettings_TcpKeepalive{
				Probes: r.Uint32N(3), Time: r.duration(5, 10),
				Interval: r.duration(1, 2),
			}
		}
		if r.seldom(3) {
			p.Tcp.MaxConnectionDuration = r.duration(60, 120)
		}
	}
	if r.often(3) {
		p.Http = &networking.ConnectionPoolSettings_HTTPSettings{
			Http1MaxPendingRequests: r.Int32N(3), Http2MaxRequests: r.Int32N(3), MaxRequestsPerConnection: r.Int32N(3), MaxRetries: r.Int32N(3),
			MaxConcurrentStreams: r.Int32N(3),
		}
		switch r.IntN(4) {
		case 0:
			p.Http.IdleTimeout = r.duration(5, 10)
		case 1:
			p.Http.H2UpgradePolicy = networking.ConnectionPoolSettings_HTTPSettings_H2UpgradePolicy(r.IntN(3)) //nolint:gosec // there are three
		case 2:
			p.Http.UseClientProtocol = true
		}
	}
	return p
}

func (r *randomMesh) outliers() *networking.OutlierDetection {
	o := &networking.OutlierDetection{MinHealthPercent: r.Int32N(2) * 50, MaxEjectionPercent: r.Int32N(3) * 30}
	if r.seldom(2) {
		o.Consecutive_5XxErrors = wrapperspb.UInt32(r.Uint32N(3))
	}
	if r.seldom(2) {
		o.ConsecutiveGatewayErrors = wrapperspb.UInt32(r.Uint32N(3))
	}
	if r.seldom(2) {
		o.Interval, o.BaseEjectionTime = r.duration(5, 10), r.duration(10, 20)
	}
	if r.seldom(3) {
		o.SplitExternalLocalOriginErrors, o.ConsecutiveLocalOriginFailures = true, wrapperspb.UInt32(r.Uint32N(3))
	}
	return o
}
