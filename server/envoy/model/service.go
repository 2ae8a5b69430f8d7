package model

import (
	"cmp"
	"fmt"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// Service is what a host is to the clients of a namespace. It is not modified once it was made.
type Service struct {
	Host      string // in lower case
	Namespace string
	Precedence
	Ports      []Port
	Addresses  []string // that clients may connect to, addresses or ranges
	Resolution networking.ServiceEntry_Resolution
	External   bool
	Names      []string // that certificates of the service have, by its ServiceEntries
	Domains    []string // the trust domain of service accounts, and its aliases

	Objects []resource.Key // that it was made of
	From    string         // what it was made of: equal for what is equal
}

// Port is one port of a service.
type Port struct {
	Number    uint32
	Name      string
	Target    uint32 // where it is not the endpoint that says
	Protocol  Protocol
	Endpoints func() []Endpoint

	Resolution networking.ServiceEntry_Resolution // of the service; DNS if another ServiceEntry adds names to addresses

	Owner resource.Key // the ServiceEntry that has it
	Index int          // there

	Unreached bool     // by a listener: clients know it because routes lead there
	Late      bool     // it has what others leave of the port
	Part      int      // of the clients' Sidecar, by which they reach it
	Spoken    Protocol // by listeners, where the clients' Sidecar may say otherwise
	Bind      string   // where listeners are, if it says so
}

// Place is where the port stands in its ServiceEntry.
func (p *Port) Place() Place { return Place{p.Owner, fmt.Sprintf("spec.ports[%d]", p.Index)} }

// Endpoint is one of the places that serve a port.
type Endpoint struct {
	Workload, Namespace string // of a WorkloadEntry; empty for one that a ServiceEntry lists
	Address             string
	Spec                *networking.WorkloadEntry // the rest, which endpoints of an entry share where it is equal
	Labels              map[string]string
	Group               *WorkloadGroup // that the workload is in, or nil

	Owner  resource.Key // the ServiceEntry that lists or selects it
	Index  int          // there
	Target uint32       // of the port there; 0 if it is that of the service
}

// PortOf returns the endpoint's own port for a port of a service.
func (e *Endpoint) PortOf(p *Port) uint32 {
	return cmp.Or(e.Spec.GetPorts()[p.Name], e.Target, p.Target, p.Number)
}

// Place is where the endpoint stands: a WorkloadEntry, or a part of a ServiceEntry.
func (e *Endpoint) Place() Place {
	if e.Workload != "" {
		return Place{resource.Key{Kind: resource.WorkloadEntry, Namespace: e.Namespace, Name: e.Workload}, "spec"}
	}
	return Place{e.Owner, fmt.Sprintf("spec.endpoints[%d]", e.Index)}
}

// Ranges are those of the service's addresses that are ranges.
func (s *Service) Ranges() (all []string) {
	for _, a := range s.Addresses {
		if !resource.IsAddress(a) {
			all = append(all, a)
		}
	}
	return all
}

// IsDNS says whether names of endpoints are resolved.
func IsDNS(r networking.ServiceEntry_Resolution) bool {
	return r == networking.ServiceEntry_DNS || r == networking.ServiceEntry_DNS_ROUND_ROBIN
}

// DefaultPort is the port that is meant by a name without one: the first one that speaks HTTP/2, else the first one.
func (s *Service) DefaultPort() *Port {
	for i := range s.Ports {
		if s.Ports[i].Protocol == ProtocolHTTP2 {
			return &s.Ports[i]
		}
	}
	return &s.Ports[0]
}
