package model

import (
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// RootNamespace has the rules for namespaces that have none.
const RootNamespace = "istio-system"

// Policy is the merged content of the DestinationRules of a service for the clients of a namespace.
type Policy struct {
	Namespace, Name string // of the first rule; empty without rules
	Traffic         *networking.TrafficPolicy
	Subsets         []*networking.Subset
	Plaintext       bool // clients send plaintext despite ISTIO_MUTUAL
	Objects         []resource.Key
	From            string // equal for equal content
}

// On returns the policy on a port, of a subset or, if it is nil, of the service. The settings of a port replace the
// general settings, and those of a subset complete those of the service.
func (p *Policy) On(port uint32, subset *networking.Subset) *networking.TrafficPolicy {
	general, _ := onPort(p.Traffic, port)
	if subset.GetTrafficPolicy() == nil {
		return general
	}
	specific, instead := onPort(subset.GetTrafficPolicy(), port)
	if general == nil {
		return specific
	}
	merged := &networking.TrafficPolicy{
		ConnectionPool: general.GetConnectionPool(), LoadBalancer: general.GetLoadBalancer(),
		OutlierDetection: general.GetOutlierDetection(),
		Tls:              general.GetTls(), Tunnel: general.GetTunnel(), ProxyProtocol: general.GetProxyProtocol(),
		RetryBudget: general.GetRetryBudget(),
	}
	if instead || specific.GetConnectionPool() != nil {
		merged.ConnectionPool = specific.GetConnectionPool()
	}
	if instead || specific.GetLoadBalancer() != nil {
		merged.LoadBalancer = specific.GetLoadBalancer()
	}
	if instead || specific.GetOutlierDetection() != nil {
		merged.OutlierDetection = specific.GetOutlierDetection()
	}
	if instead || specific.GetTls() != nil {
		merged.Tls = specific.GetTls()
	}
	if specific.GetProxyProtocol() != nil {
		merged.ProxyProtocol = specific.GetProxyProtocol()
	}
	if specific.GetRetryBudget() != nil {
		merged.RetryBudget = specific.GetRetryBudget()
	}
	return merged
}

// onPort returns the policy of a port, and whether the port overrides the general settings.
func onPort(trafficPolicy *networking.TrafficPolicy, port uint32) (policy *networking.TrafficPolicy, overridden bool) {
	for _, settings := range trafficPolicy.GetPortLevelSettings() {
		if settings.GetPort().GetNumber() == port {
			return &networking.TrafficPolicy{
				ConnectionPool: settings.GetConnectionPool(), LoadBalancer: settings.GetLoadBalancer(),
				OutlierDetection: settings.GetOutlierDetection(),
				Tls:              settings.GetTls(),
				ProxyProtocol:    trafficPolicy.GetProxyProtocol(), RetryBudget: trafficPolicy.GetRetryBudget(),
			}, true
		}
	}
	return trafficPolicy, false
}
