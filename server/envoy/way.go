package envoy

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"
)

// way is what it depends on where a VirtualService leads: who asks, and where.
type way struct {
	view    *view
	rule    *rule[*networking.VirtualService]
	client  profile
	port    uint32
	gateway string // namespace/name, if the client is one
	found   *findings
}

// attributes are the conditions that matches of all protocols have in common.
type attributes interface {
	GetPort() uint32
	GetGateways() []string
	GetSourceLabels() map[string]string
	GetSourceNamespace() string
}

// applies says whether a match is one for these clients and on this port.
func (w way) applies(m attributes) bool {
	if m.GetPort() != 0 && m.GetPort() != w.port {
		return false
	}
	if len(m.GetGateways()) > 0 {
		if w.gateway == "" {
			return slices.Contains(m.GetGateways(), meshGateway)
		}
		return slices.Contains(gatewaysOf(m.GetGateways(), w.rule.key.Namespace), w.gateway)
	}
	if m.GetSourceNamespace() != "" && m.GetSourceNamespace() != w.client.namespace {
		return false
	}
	return selectsLabels(m.GetSourceLabels(), w.client.labelMap())
}

// portOf returns the port of a destination: the one that it names, the one that the service has, if that is one, or else the one that was asked for.
func (w way) portOf(d *networking.Destination) uint32 {
	if d.GetPort() != nil {
		return d.GetPort().GetNumber()
	}
	if t := w.view.targets[w.hostOf(d)]; len(t.ports) == 1 {
		return t.ports[0]
	}
	return w.port
}

func (w way) hostOf(d *networking.Destination) string {
	return wholeName(d.GetHost(), w.rule.key.Namespace)
}

// cluster returns the name of the cluster of a destination, which stands at a place. As with istiod, one that does not exist has a cluster that
// does not either: requests get 503, and connections are closed. Who asks for clusters on demand would wait for one that does not exist, with each request: he is led to
// one that has no endpoints, for as long.
func (w way) cluster(d *networking.Destination, at place) string {
	host, port := w.hostOf(d), w.portOf(d)
	t, known := w.view.targets[host]
	switch {
	case !known:
		w.found.note(at, "there is no host %s here: requests get 503, connections are closed", host)
	case !slices.Contains(t.ports, port):
		w.found.note(at, "%s has no port %d: requests get 503, connections are closed", host, port)
	case d.GetSubset() != "" && !slices.ContainsFunc(t.policy.subsets, func(s *networking.Subset) bool { return s.GetName() == d.GetSubset() }):
		w.found.note(at, "no DestinationRule gives %s a subset %s: requests get 503, connections are closed", host, d.GetSubset())
	default:
		return clusterName(port, d.GetSubset(), host)
	}
	if w.client.onDemand {
		return blackHole
	}
	return clusterName(port, d.GetSubset(), host)
}

// policyOf is what applies to a destination, or nil.
func (w way) policyOf(d *networking.Destination) *networking.TrafficPolicy {
	t, ok := w.view.targets[w.hostOf(d)]
	if !ok {
		return nil
	}
	var subset *networking.Subset
	for _, s := range t.policy.subsets {
		if s.GetName() == d.GetSubset() {
			subset = s
		}
	}
	return t.policy.on(w.portOf(d), subset)
}
