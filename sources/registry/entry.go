package registry

import (
	"cmp"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
	"istio.io/istio/pkg/config/protocol"

	"tributary/resource"
)

// VIPs gives each host a virtual address that never changes. See package vip.
type VIPs interface {
	Address(host string) (netip.Addr, error)
}

// The services that get a virtual address: those whose protocol has no host in it, all, or none.
const (
	VIPsTCP  = "tcp"
	VIPsAll  = "all"
	VIPsNone = "none"
)

// Port is the port on which clients find a service.
type Port struct {
	Number   uint32
	Protocol string // the name of the protocol in Istio
}

// Name is the name of the port in a ServiceEntry.
func (p Port) Name() string { return strings.ToLower(string(protocol.Parse(p.Protocol))) }

// ports counts the ports and protocols of all instances of a service, served or not: so all replicas choose the same.
type ports struct {
	configured uint32
	counts     map[uint32]int // instances by their own port
	wanted     map[uint32]int // instances by the port that they name for the service
	protocols  map[string]int
}

// newPorts returns empty counts. configured is the port of all services; zero if there is none.
func newPorts(configured int) *ports {
	return &ports{uint32(configured), map[uint32]int{}, map[uint32]int{}, map[string]int{}} //nolint:gosec // checked
}

// add adds an instance with its own port, the one that it wants for the service, and its protocol. Zero and "" are not
// counted.
func (p *ports) add(port, wanted uint32, protocol string) {
	p.counts[port]++
	p.wanted[wanted]++
	p.protocols[protocol]++
	delete(p.counts, 0)
	delete(p.wanted, 0)
	delete(p.protocols, "")
}

// port returns the port of the service; without instances the previous one.
func (p *ports) port(before Port) Port {
	return Port{
		cmp.Or(p.configured, most(p.wanted), most(p.counts), before.Number),
		cmp.Or(most(p.protocols), before.Protocol),
	}
}

// most returns the value with the highest count, the lowest of several, or the zero value.
func most[T cmp.Ordered](counts map[T]int) (best T) {
	for _, value := range slices.Sorted(maps.Keys(counts)) {
		if counts[value] > counts[best] {
			best = value
		}
	}
	return best
}

// Named reports whether an address is a host name, not an IP address.
func Named(address string) bool { _, err := netip.ParseAddr(address); return err != nil }

// Endpoint is an address of a service with one port.
type Endpoint struct {
	Address  string // an IP address, or a host
	Port     uint32
	Weight   uint32
	Labels   map[string]string
	Locality string
	Instance string // its name, where the registry's instances have names; empty if unknown

	ServiceAccount string
	Levels         uint8 // of its registrations, where the registry has several levels
}

// Compare orders endpoints. Those that compare equal are the same endpoint.
func (e Endpoint) Compare(o Endpoint) int {
	return cmp.Or(cmp.Compare(e.Address, o.Address), cmp.Compare(e.Port, o.Port))
}

// Same reports whether all fields are equal.
func (e Endpoint) Same(o Endpoint) bool {
	return e.Compare(o) == 0 && e.Weight == o.Weight && e.Instance == o.Instance && e.Locality == o.Locality &&
		e.ServiceAccount == o.ServiceAccount && e.Levels == o.Levels && maps.Equal(e.Labels, o.Labels)
}

func (e Endpoint) String() string { return net.JoinHostPort(e.Address, strconv.Itoa(int(e.Port))) }

// Name is the name of a service in the mesh: its host, and the name of its object.
type Name struct{ Host, Object string }

// Service is one port of a host of the mesh, with its endpoints.
type Service[ID any] struct {
	ID        ID
	Name      Name
	Owners    []string // applications that serve it; none if the registry has no applications
	Port      Port
	Endpoints []Endpoint
}

// ServiceEntry returns the spec of one port of a host, without virtual addresses.
func ServiceEntry(host string, port uint32, name, protocol string, endpoints []Endpoint) *networking.ServiceEntry {
	serviceEntry := &networking.ServiceEntry{
		Hosts: []string{host}, Location: networking.ServiceEntry_MESH_INTERNAL, Resolution: networking.ServiceEntry_STATIC,
		Ports: []*networking.ServicePort{{Number: port, Name: name, Protocol: protocol}},
	}
	for _, endpoint := range endpoints {
		serviceEntry.Endpoints = append(serviceEntry.Endpoints, &networking.WorkloadEntry{
			Address: endpoint.Address, Ports: map[string]uint32{name: endpoint.Port}, Weight: endpoint.Weight,
			Labels:         maps.Clone(endpoint.Labels),
			Locality:       endpoint.Locality,
			ServiceAccount: endpoint.ServiceAccount,
		})
		if Named(endpoint.Address) { // DNS takes IP addresses too
			serviceEntry.Resolution = networking.ServiceEntry_DNS
		}
	}
	return serviceEntry
}

// Address returns the virtual address of a host, if it gets one. hostless says that some protocol of the host does not
// transmit the host.
func Address(vips VIPs, selection, host, place string, hostless bool) (addresses, warnings []string) {
	if vips == nil || selection != VIPsAll && (selection != VIPsTCP || !hostless) {
		return nil, nil
	}
	address, err := vips.Address(host)
	if err != nil {
		return nil, []string{place + ": no virtual address: " + err.Error()}
	}
	return []string{address.String()}, nil
}

// ReadEntry returns the endpoints, in order, and the port of a ServiceEntry with one port.
func ReadEntry(r *resource.Resource) (endpoints []Endpoint, port Port, ok bool) {
	spec, err := r.Spec()
	serviceEntry, ok := spec.(*networking.ServiceEntry)
	if err != nil || !ok || len(serviceEntry.Ports) != 1 {
		return nil, Port{}, false
	}
	for _, e := range serviceEntry.Endpoints {
		endpoints = append(endpoints, Endpoint{
			Address: e.Address, Port: e.Ports[serviceEntry.Ports[0].Name], Weight: e.Weight, Labels: e.Labels,
			Locality:       e.Locality,
			ServiceAccount: e.ServiceAccount,
		})
	}
	return endpoints, Port{serviceEntry.Ports[0].Number, serviceEntry.Ports[0].Protocol}, true
}
