// Package mapping turns what Consul says of a service into Istio's ServiceEntries. It is pure: no I/O, no clock.
//
// It imports sources for the type Reject, which is what a source hands on to its sink; a type of its own would be the same
// again.
package mapping

import (
	"errors"
	"net/netip"

	"github.com/hashicorp/consul/api"

	"tributary/resource"
	"tributary/sources"
)

// Service is what was read of one service at one place: a datacenter, or a namespace, partition or peer in it. Without
// entries it is a service that exists, or existed, and has no instance.
type Service struct {
	Name       string
	Datacenter string
	Namespace  string // empty or "default" in the community edition
	Partition  string // the same
	Peer       string // empty if not imported from a peer
	Entries    []*api.ServiceEntry
}

// VIPs gives hosts virtual addresses: the same host always the same one.
type VIPs interface {
	Address(host string) (netip.Addr, error)
}

// Mapper maps services. It remembers the ports that it gave to services, so that they are stable. It is safe for concurrent use.
type Mapper struct {
	o    Options
	vips VIPs
}

// New returns a mapper. Without vips no service gets a virtual address.
func New(o Options, vips VIPs) (*Mapper, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &Mapper{o: o, vips: vips}, nil
}

// Service maps the service of that name, wherever it is: in has one element for each datacenter, namespace, partition and
// peer where it was found, in any order. Without in, the service is gone for good: nothing is returned, and what is
// remembered of it is forgotten. A service that has no instance, or no healthy one, becomes a ServiceEntry without
// endpoints. Warnings say what was left out.
func (m *Mapper) Service(name string, in []Service) (rs []*resource.Resource, rejects []sources.Reject, warnings []string) {
	return nil, []sources.Reject{{Err: errors.New("not built yet")}}, nil
}

// Restore remembers the ports of ServiceEntries that this package made earlier, such as those that a sink holds when a
// source starts.
func (m *Mapper) Restore(rs []*resource.Resource) {}

// Names tells the mapper the names of all services, whenever these change. Names that are the same but for case or for
// characters that a host may not have clash; the names that must be mapped again because of that are returned. Without
// it, clashes are settled among the services that were mapped.
func (m *Mapper) Names(names []string) (again []string) { return nil }
