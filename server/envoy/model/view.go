package model

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// UnregisteredPort is the port of routes for a host without a service.
const UnregisteredPort = 80

// View is the immutable view of a host for the clients of a profile: its service and the rules for it. A translation
// depends only on the view, and equal views have equal keys.
type View struct {
	Host    string
	Service *Service // nil for a host that only has routes
	Policy  Policy
	Mutual  *Mutual // of clients with an identity; nil without mutual TLS
	// RoutesByListener has the VirtualService of each egress listener, by the listener's index in the clients' Sidecar.
	RoutesByListener   map[int]*VirtualService
	UnregisteredRoutes *VirtualService   // where no service has the host; or nil
	RouteTargets       map[string]Target // by the name of the host

	Servers              []Server          // of a gateway
	BoundVirtualServices []*VirtualService // to the servers
	Observability        *Observation      // of all listeners of a gateway or sidecar
	Security             *Security         // of the listeners
	Inbound              *Inbound          // of a sidecar; nil elsewhere

	Patches *Extension // all patches for views with listeners; only patches of clusters for views of hosts

	Client   Profile        // only the attributes that affect the view
	Objects  []resource.Key // behind it
	Findings Findings
}

// Target has the properties of a destination host that routes depend on.
type Target struct {
	Ports  []uint32 // empty if there is no such service
	Policy Policy
}

// IsReached reports whether clients reach a port of the service by the routes of the port. The service may be nil.
func (s *Service) IsReached(number uint32) bool {
	return s != nil && slices.ContainsFunc(s.Ports,
		func(p Port) bool { return p.Number == number && !p.Unreached && !p.Late })
}

// MeshGateway is the name of the gateway that stands for all sidecars.
const MeshGateway = "mesh"

// RouteMatches returns the conditions of all routes of a VirtualService.
func RouteMatches(spec *networking.VirtualService) (list []Attributes) {
	for _, h := range spec.GetHttp() {
		for _, m := range h.GetMatch() {
			list = append(list, m)
		}
	}
	for _, r := range spec.GetTls() {
		for _, m := range r.GetMatch() {
			list = append(list, m)
		}
	}
	for _, r := range spec.GetTcp() {
		for _, m := range r.GetMatch() {
			list = append(list, m)
		}
	}
	return list
}

// DependsOnClient reports whether the routes differ between clients.
func DependsOnClient(spec *networking.VirtualService) bool {
	return slices.ContainsFunc(RouteMatches(spec),
		func(m Attributes) bool { return len(m.GetSourceLabels()) > 0 || m.GetSourceNamespace() != "" })
}

// Attributes are the common conditions of matches of all protocols.
type Attributes interface {
	GetPort() uint32
	GetGateways() []string
	GetSourceLabels() map[string]string
	GetSourceNamespace() string
}
