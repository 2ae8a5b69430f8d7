package model

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// UnregisteredPort is where routes of a host are that is no service.
const UnregisteredPort = 80

// View is what a host is to the clients of a profile: the service, if there is one, and the rules that apply to it. It is not modified once
// it was made. A translation is made of nothing else, and key tells it from all others.
type View struct {
	Host    string
	Service *Service // nil for a host that only has routes
	Policy  Policy
	Mutual  *Mutual                                   // how clients with an identity authenticate the service; nil if they do not
	Rules   map[int]*Rule[*networking.VirtualService] // that apply, by part of the clients' Sidecar
	Own     *Rule[*networking.VirtualService]         // that has routes of the host where no service has it; nil if there is none
	Targets map[string]Target                         // to which the routes lead, by the name of the host

	Servers []Server                            // of a gateway
	Bound   []*Rule[*networking.VirtualService] // to these
	Seen    *Observation                        // by all listeners of a gateway
	Secured *Security                           // is what security objects ask of these
	Inbound *Inbound                            // of a sidecar; nil elsewhere

	Extended *Extension // by EnvoyFilters and WasmPlugins: all of it with the listeners of a gateway, else what patches clusters

	Client   Profile        // without what does not bear on the rest
	Objects  []resource.Key // of which it was made
	Findings Findings
}

// Target is what routes have to know of a host to which they lead.
type Target struct {
	Ports  []uint32 // empty if there is no such service
	Policy Policy
}

// IsReached says whether clients reach a port of the service, if there is one, by the routes of the port.
func (s *Service) IsReached(number uint32) bool {
	return s != nil && slices.ContainsFunc(s.Ports, func(p Port) bool { return p.Number == number && !p.Unreached && !p.Late })
}

// MeshGateway is the name of the gateway that stands for all sidecars.
const MeshGateway = "mesh"

// TellsApart says whether the routes differ by who asks.
func TellsApart(spec *networking.VirtualService) bool {
	for _, h := range spec.GetHttp() {
		if slices.ContainsFunc(h.GetMatch(), ofSome[*networking.HTTPMatchRequest]) {
			return true
		}
	}
	for _, r := range spec.GetTls() {
		if slices.ContainsFunc(r.GetMatch(), ofSome[*networking.TLSMatchAttributes]) {
			return true
		}
	}
	for _, r := range spec.GetTcp() {
		if slices.ContainsFunc(r.GetMatch(), ofSome[*networking.L4MatchAttributes]) {
			return true
		}
	}
	return false
}

// ofSome says whether a match is one for some clients only.
func ofSome[M Attributes](m M) bool {
	return len(m.GetSourceLabels()) > 0 || m.GetSourceNamespace() != ""
}

// Attributes are the conditions that matches of all protocols have in common.
type Attributes interface {
	GetPort() uint32
	GetGateways() []string
	GetSourceLabels() map[string]string
	GetSourceNamespace() string
}
