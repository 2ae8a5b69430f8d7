package envoy

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// rootNamespace is that of which rules are for everybody who has none of his own.
const rootNamespace = "istio-system"

// policy is what DestinationRules say of a service to the clients of a namespace.
type policy struct {
	namespace, name string // of the first rule; empty if there is none
	traffic         *networking.TrafficPolicy
	subsets         []*networking.Subset
	plaintext       bool // is sent where ISTIO_MUTUAL is wanted
	objects         []resource.Key
	from            string // what it was made of: equal for what is equal
}

// policy returns what applies to a service when clients of a namespace ask for it: the rules of the clients' own namespace, else those of the
// service's, else those of the root namespace; of these the ones of the narrowest host. One adds to the one before if it is exported alike: the
// subsets of all, and the policy of the oldest one that has some. One that is exported otherwise begins anew, and as with istiod the last ones count.
func (m *mesh) policy(s *service, namespace string) policy {
	for _, of := range []string{namespace, s.namespace, rootNamespace} {
		var p policy
		var from digest
		narrowest := ""
		var to []string // to whom the rule is exported with which the last policy began
		for host, r := range m.policies.of(s.host) {
			if r.key.Namespace != of || !visibleTo(r.exportTo, of, namespace) || len(r.spec.GetWorkloadSelector().GetMatchLabels()) > 0 {
				continue
			}
			if narrowest != "" && host != narrowest {
				break
			}
			if narrowest == "" || !extends(r.exportTo, to) {
				to, p = r.exportTo, policy{namespace: r.key.Namespace, name: r.key.Name, plaintext: m.plaintext}
				from = nil
			}
			narrowest = host
			from.object(r.key)
			from.text(r.version)
			p.objects = append(p.objects, r.key)
			if p.traffic == nil {
				p.traffic = r.spec.GetTrafficPolicy()
			}
			for _, subset := range r.spec.GetSubsets() {
				if !slices.ContainsFunc(p.subsets, func(known *networking.Subset) bool { return known.GetName() == subset.GetName() }) {
					p.subsets = append(p.subsets, subset)
				}
			}
		}
		if narrowest != "" {
			p.from = string(from)
			return p
		}
	}
	return policy{}
}

// extends says whether what is exported to some adds to what was exported to others before: to the same, by the same names, or to more.
func extends(to, before []string) bool {
	if len(to) == 0 || len(before) == 0 {
		return len(to) == len(before)
	}
	return !slices.ContainsFunc(before, func(name string) bool { return !slices.Contains(to, name) })
}

// on returns the policy on a port, of a subset or, if it is nil, of the whole. What is said of a port is all that is said there: it does not
// complete what is said of the rest. What is said of a subset completes what is said of the whole.
func (p *policy) on(port uint32, subset *networking.Subset) *networking.TrafficPolicy {
	whole, _ := onPort(p.traffic, port)
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

// has says whether an endpoint is one of the subset. Nil is the whole.
func has(subset *networking.Subset, e *endpoint) bool {
	for name, value := range subset.GetLabels() {
		if e.labels[name] != value {
			return false
		}
	}
	return true
}
