// Package mapping turns what Consul says of a service into Istio's ServiceEntries. It is pure: no I/O, no clock. What it makes is
// valid, whatever is in Consul, and is the same for the same content, in whatever order that comes.
package mapping

import (
	"slices"
	"strings"

	"github.com/hashicorp/consul/api"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/registry"
)

// Service is what was read of one service at one place: a datacenter, or a namespace, partition or peer in it. Without
// entries it is a service that exists, or existed, and has no instance. Entries and their nodes and services are not nil.
type Service struct {
	Name       string
	Datacenter string
	Namespace  string // empty or "default" in the community edition
	Partition  string // the same
	Peer       string // empty if not imported from a peer
	Entries    []*api.ServiceEntry
}

// Mapper maps services.
//
// A service's ports have numbers of their own, to which the ports of the endpoints map. The number of a port is Options.ServicePort, or
// what the meta of most instances says, or the number that it had before, or the port of most instances, healthy or not.
// So clients need not care that instances come and go with other ports. The memory lasts until the service is gone; Restore
// fills it after a restart.
type Mapper struct {
	o      Options
	vips   registry.VIPs
	shapes map[string]shape    // by host: what was published last
	hosts  map[string][]string // by service that was mapped: its hosts in shapes
	claims map[string]claim    // by service
}

// New returns a mapper. Without vips no service gets a virtual address. An error begins with the key at fault.
func New(o Options, vips registry.VIPs) (*Mapper, error) {
	o = o.WithDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	return &Mapper{o: o, vips: vips, shapes: map[string]shape{}, hosts: map[string][]string{}, claims: map[string]claim{}}, nil
}

// Service maps the service of that name, wherever it is: in has one element for each datacenter, namespace, partition and
// peer where it was found, in any order. Without in, the service is gone for good: nothing is returned, and what is
// remembered of it is forgotten. A service that has no instance, or no healthy one, becomes a ServiceEntry without
// endpoints. Nothing is returned for a service that consists of sidecars and gateways.
//
// A reject has no key: what was published of the service should stay, as it does behind a sink.
func (m *Mapper) Service(name string, in []Service) sources.Content {
	c := sources.Content{Group: name}
	if len(in) == 0 {
		for _, host := range m.hosts[name] {
			delete(m.shapes, host)
		}
		delete(m.hosts, name)
		return c
	}
	claim, known := m.claims[name]
	if !known {
		claim.label = labelOf(name)
	}
	if claim.warning != "" {
		c.Warnings = []string{claim.warning}
	}
	if claim.label == "" {
		m.hosts[name] = nil
		return c
	}
	var hosts []string
	for _, f := range m.families(name, claim.label, in) {
		for _, i := range f.instances() {
			if i.why != "" {
				c.LeftOut = append(c.LeftOut, sources.LeftOut{What: i.at, Of: name, Why: i.why})
			}
		}
		w := &warner{place: f.place()}
		made, err := m.mapFamily(f, w)
		c.Warnings = append(c.Warnings, w.list()...)
		if err != nil {
			c.Rejects = append(c.Rejects, sources.Reject{Origin: resource.Origin{Place: w.place}, Err: err})
			continue
		}
		hosts = append(hosts, f.host)
		c.Resources = append(c.Resources, made...)
	}
	if len(c.Rejects) == 0 {
		for _, host := range m.hosts[name] {
			if !slices.Contains(hosts, host) {
				delete(m.shapes, host)
			}
		}
		m.hosts[name] = hosts
	}
	slices.Sort(c.Warnings)
	return c
}

// Restore remembers the ports of ServiceEntries that this package made earlier, such as those that a sink holds when a
// source starts. What is already known is kept.
func (m *Mapper) Restore(rs []*resource.Resource) {
	for host, s := range shapesOf(rs) {
		if _, known := m.shapes[host]; !known {
			m.shapes[host] = s
		}
	}
}

// valid is a text for people.
func valid(s string) string { return strings.ToValidUTF8(s, "?") }
