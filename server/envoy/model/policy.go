package model

import (
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// RootNamespace is that of which rules are for everybody who has none of his own.
const RootNamespace = "istio-system"

// Policy is what DestinationRules say of a service to the clients of a namespace.
type Policy struct {
	Namespace, Name string // of the first rule; empty if there is none
	Traffic         *networking.TrafficPolicy
	Subsets         []*networking.Subset
	Plaintext       bool // is sent where ISTIO_MUTUAL is wanted
	Objects         []resource.Key
	From            string // what it was made of: equal for what is equal
}

// On returns the policy on a port, of a subset or, if it is nil, of the whole. What is said of a port is all that is said there: it does
// not complete what is said of the rest. What is said of a subset completes what is said of the whole.
func (p *Policy) On(port uint32, subset *networking.Subset) *networking.TrafficPolicy {
	whole, _ := onPort(p.Traffic, port)
	if subset.GetTrafficPolicy() == nil {
		return whole
	}
	of, instead := onPort(subset.GetTrafficPolicy(), port)
	if whole == nil {
		return of
	}
	merged := &networking.TrafficPolicy{
		ConnectionPool: whole.GetConnectionPool(), LoadBalancer: whole.GetLoadBalancer(), OutlierDetection: whole.GetOutlierDetection(),
		Tls: whole.GetTls(), Tunnel: whole.GetTunnel(), ProxyProtocol: whole.GetProxyProtocol(), RetryBudget: whole.GetRetryBudget(),
	}
	if instead || of.GetConnectionPool() != nil {
		merged.ConnectionPool = of.GetConnectionPool()
	}
	if instead || of.GetLoadBalancer() != nil {
		merged.LoadBalancer = of.GetLoadBalancer()
	}
	if instead || of.GetOutlierDetection() != nil {
		merged.OutlierDetection = of.GetOutlierDetection()
	}
	if instead || of.GetTls() != nil {
		merged.Tls = of.GetTls()
	}
	if of.GetProxyProtocol() != nil {
		merged.ProxyProtocol = of.GetProxyProtocol()
	}
	if of.GetRetryBudget() != nil {
		merged.RetryBudget = of.GetRetryBudget()
	}
	return merged
}

// onPort returns what a policy says of a port, and whether that is something of its own.
func onPort(p *networking.TrafficPolicy, port uint32) (of *networking.TrafficPolicy, own bool) {
	for _, s := range p.GetPortLevelSettings() {
		if s.GetPort().GetNumber() == port {
			return &networking.TrafficPolicy{
				ConnectionPool: s.GetConnectionPool(), LoadBalancer: s.GetLoadBalancer(), OutlierDetection: s.GetOutlierDetection(), Tls: s.GetTls(),
				ProxyProtocol: p.GetProxyProtocol(), RetryBudget: p.GetRetryBudget(),
			}, true
		}
	}
	return p, false
}
