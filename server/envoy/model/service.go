package model

import (
	"cmp"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// Service is the immutable service of a host for the clients of a namespace.
type Service struct {
	Host      string // in lower case
	Namespace string
	Precedence
	Ports      []Port
	Addresses  []string // that clients may connect to, addresses or ranges
	Resolution networking.ServiceEntry_Resolution
	External   bool
	Names      []string // in certificates of the service, by its ServiceEntries
	Domains    []string // the trust domain of service accounts, and its aliases

	Objects []resource.Key // behind the service
	From    string         // equal for equal content
}

// Port is a port of a service.
type Port struct {
	Number    uint32
	Name      string
	Target    uint32 // of endpoints without a target port
	Protocol  Protocol
	Endpoints func() []Endpoint

	Resolution networking.ServiceEntry_Resolution // of the service; DNS if another ServiceEntry adds names to addresses

	Owner resource.Key // the ServiceEntry
	Index int          // in the ServiceEntry

	Unreached bool     // by a listener: clients see it because routes lead to it
	Late      bool     // it comes after the other services of the port
	Part      int      // the index of the egress listener in the clients' Sidecar
	Spoken    Protocol // the protocol of listeners; the clients' Sidecar may override it
	Bind      string   // the address of listeners in the clients' Sidecar, or empty
}

// Place is the place of the port in its ServiceEntry.
func (p *Port) Place() Place { return PlaceIn(p.Owner, "spec.ports[%d]", p.Index) }

// Endpoint is an instance of a service.
type Endpoint struct {
	Workload, Namespace string // of a WorkloadEntry; empty for one that a ServiceEntry lists
	Address             string
	Spec                *networking.WorkloadEntry // the other fields; equal endpoints of an entry share them
	Labels              map[string]string
	Group               *WorkloadGroup // of the workload, or nil

	Owner  resource.Key // the ServiceEntry that lists or selects it
	Index  int          // in the ServiceEntry
	Target uint32       // its port, or 0 for that of the service
}

// PortOf returns the endpoint's port for a port of a service.
func (e *Endpoint) PortOf(p *Port) uint32 {
	return cmp.Or(e.Spec.GetPorts()[p.Name], e.Target, p.Target, p.Number)
}

// Place is the place of the endpoint: a WorkloadEntry, or a part of a ServiceEntry.
func (e *Endpoint) Place() Place {
	if e.Workload != "" {
		return Place{resource.Key{Kind: resource.WorkloadEntry, Namespace: e.Namespace, Name: e.Workload}, "spec"}
	}
	return PlaceIn(e.Owner, "spec.endpoints[%d]", e.Index)
}

// Ranges returns the ranges among the service's addresses.
func (s *Service) Ranges() (ranges []string) {
	for _, a := range s.Addresses {
		if !resource.IsAddress(a) {
			ranges = append(ranges, a)
		}
	}
	return ranges
}

// IsDNS reports whether names of endpoints are resolved.
func IsDNS(r networking.ServiceEntry_Resolution) bool {
	return r == networking.ServiceEntry_DNS || r == networking.ServiceEntry_DNS_ROUND_ROBIN
}

// DefaultPort is the port of a name without a port: the first HTTP/2 port, else the first port.
func (s *Service) DefaultPort() *Port {
	for i := range s.Ports {
		if s.Ports[i].Protocol == ProtocolHTTP2 {
			return &s.Ports[i]
		}
	}
	return &s.Ports[0]
}
