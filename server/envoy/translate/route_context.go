package translate

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/model"
)

// routeContext has the inputs of a VirtualService's routes: the client, port and gateway.
type routeContext struct {
	view     *model.View
	rule     *model.VirtualService
	client   model.Profile
	port     uint32
	gateway  string // namespace/name, if the client is a gateway
	tls      bool   // of the gateway's server
	findings *model.Findings
}

// applies reports whether a match is for these clients and this port.
func (w routeContext) applies(attributes model.Attributes) bool {
	if attributes.GetPort() != 0 && attributes.GetPort() != w.port {
		return false
	}
	if len(attributes.GetGateways()) > 0 {
		if w.gateway == "" {
			return slices.Contains(attributes.GetGateways(), model.MeshGateway)
		}
		return slices.Contains(w.rule.WholeGateways(attributes.GetGateways()), w.gateway)
	}
	if attributes.GetSourceNamespace() != "" && attributes.GetSourceNamespace() != w.client.Namespace {
		return false
	}
	return model.SelectsLabels(attributes.GetSourceLabels(), w.client.LabelMap())
}

// portOf returns a destination's port: its own, else the service's if it has exactly one, else the port of the request.
func (w routeContext) portOf(destination *networking.Destination) uint32 {
	if destination.GetPort() != nil {
		return destination.GetPort().GetNumber()
	}
	if t := w.view.RouteTargets[w.hostOf(destination)]; len(t.Ports) == 1 {
		return t.Ports[0]
	}
	return w.port
}

func (w routeContext) hostOf(d *networking.Destination) string {
	return w.rule.WholeName(d.GetHost())
}

// noBackend is the cluster of a destination without a host, which only objects of Gateway API have. There is no such
// cluster.
const noBackend = "UnknownService"

// cluster returns the name of the cluster of the destination at a place. As in istiod, a missing destination has a
// missing cluster: requests get 503, or 500 by Gateway API (see forward), and connections are closed. A client with
// on-demand clusters would wait for a cluster that does not exist; it gets BlackHole instead, which answers 503.
func (w routeContext) cluster(destination *networking.Destination, place model.Place) string {
	host, port := w.hostOf(destination), w.portOf(destination)
	target, exists := w.view.RouteTargets[host]
	effect := "requests get 503, connections are closed"
	if w.rule.Derived == model.DerivedGateway && !w.client.OnDemand {
		effect = "requests get 500, connections are closed"
	}
	switch {
	case host == "":
		w.findings.Note(place, "there is no such backend: %s", effect)
		if !w.client.OnDemand {
			return noBackend
		}
	case !exists:
		w.findings.Note(place, "there is no host %s here: %s", host, effect)
	case !slices.Contains(target.Ports, port):
		w.findings.Note(place, "%s has no port %d: %s", host, port, effect)
	case destination.GetSubset() != "" && !slices.ContainsFunc(target.Policy.Subsets,
		func(s *networking.Subset) bool { return s.GetName() == destination.GetSubset() }):
		w.findings.Note(place, "no DestinationRule gives %s a subset %s: %s", host, destination.GetSubset(), effect)
	default:
		return model.ClusterName(port, destination.GetSubset(), host)
	}
	if w.client.OnDemand {
		return model.BlackHole
	}
	return model.ClusterName(port, destination.GetSubset(), host)
}

// policyOf returns the policy of a destination, or nil.
func (w routeContext) policyOf(destination *networking.Destination) *networking.TrafficPolicy {
	target, ok := w.view.RouteTargets[w.hostOf(destination)]
	if !ok {
		return nil
	}
	var subset *networking.Subset
	for _, s := range target.Policy.Subsets {
		if s.GetName() == destination.GetSubset() {
			subset = s
		}
	}
	return target.Policy.On(w.portOf(destination), subset)
}
