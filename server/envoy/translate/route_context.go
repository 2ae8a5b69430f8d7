package translate

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/model"
)

// routeContext has the inputs of a VirtualService's routes: the view, port and gateway.
type routeContext struct {
	view           *model.View
	virtualService *model.VirtualService
	port           uint32
	gateway        string // namespace/name, if the client is a gateway
	tls            bool   // of the gateway's server
	findings       *model.Findings
}

func (r routeContext) matchOptions() matchOptions {
	return matchOptions{
		tokenClaims:   r.view.Client.Role == model.Ingress,
		wholeSegments: r.virtualService.Derived.BySegment(),
	}
}

// applies reports whether a match is for these clients and this port.
func (r routeContext) applies(attributes model.Attributes) bool {
	if attributes.GetPort() != 0 && attributes.GetPort() != r.port {
		return false
	}
	if len(attributes.GetGateways()) > 0 {
		if r.gateway == "" {
			return slices.Contains(attributes.GetGateways(), model.MeshGateway)
		}
		return slices.Contains(r.virtualService.WholeGateways(attributes.GetGateways()), r.gateway)
	}
	if attributes.GetSourceNamespace() != "" && attributes.GetSourceNamespace() != r.view.Client.Namespace {
		return false
	}
	return model.SelectsLabels(attributes.GetSourceLabels(), r.view.Client.LabelMap())
}

// portOf returns a destination's port: its own, else the service's if it has exactly one, else the port of the request.
func (r routeContext) portOf(destination *networking.Destination) uint32 {
	if destination.GetPort() != nil {
		return destination.GetPort().GetNumber()
	}
	if t := r.view.RouteTargets[r.hostOf(destination)]; len(t.Ports) == 1 {
		return t.Ports[0]
	}
	return r.port
}

func (r routeContext) hostOf(d *networking.Destination) string {
	return r.virtualService.WholeName(d.GetHost())
}

// noBackend is the cluster of a destination without a host, which only objects of Gateway API have. There is no such
// cluster.
const noBackend = "UnknownService"

// clusterName returns the cluster of the destination at a place. As in istiod, a missing destination has a
// missing cluster: requests get 503, or 500 by Gateway API (see forward), and connections are closed. A client with
// on-demand clusters would wait for a cluster that does not exist; it gets BlackHole instead, which answers 503.
func (r routeContext) clusterName(destination *networking.Destination, place model.Place) string {
	host, port := r.hostOf(destination), r.portOf(destination)
	target, exists := r.view.RouteTargets[host]
	effect := "requests get 503, connections are closed"
	if r.virtualService.Derived == model.DerivedGateway && !r.view.Client.OnDemand {
		effect = "requests get 500, connections are closed"
	}
	switch {
	case host == "":
		r.findings.Note(place, "there is no such backend: %s", effect)
		if !r.view.Client.OnDemand {
			return noBackend
		}
	case !exists:
		r.findings.Note(place, "there is no host %s here: %s", host, effect)
	case !slices.Contains(target.Ports, port):
		r.findings.Note(place, "%s has no port %d: %s", host, port, effect)
	case destination.GetSubset() != "" && !slices.ContainsFunc(target.Policy.Subsets,
		func(s *networking.Subset) bool { return s.GetName() == destination.GetSubset() }):
		r.findings.Note(place, "no DestinationRule gives %s a subset %s: %s", host, destination.GetSubset(), effect)
	default:
		return model.ClusterName(port, destination.GetSubset(), host)
	}
	if r.view.Client.OnDemand {
		return model.BlackHole
	}
	return model.ClusterName(port, destination.GetSubset(), host)
}

// policyOf returns the policy of a destination, or nil.
func (r routeContext) policyOf(destination *networking.Destination) *networking.TrafficPolicy {
	target, ok := r.view.RouteTargets[r.hostOf(destination)]
	if !ok {
		return nil
	}
	var subset *networking.Subset
	for _, s := range target.Policy.Subsets {
		if s.GetName() == destination.GetSubset() {
			subset = s
		}
	}
	return target.Policy.On(r.portOf(destination), subset)
}
