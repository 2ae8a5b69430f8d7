// Package mapping turns what Consul says of a service into Istio's ServiceEntries. It is pure: no I/O, no clock. What it makes is
// valid, whatever is in Consul, and is the same for the same content, in whatever order that comes.
//
// It imports sources for the type Reject, which is what a source hands on to its sink; a type of its own would be the same
// again.
package mapping

import (
	"net/netip"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/consul/api"

	"tributary/internal/names"
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

// VIPs gives hosts virtual addresses: the same host always the same one. See package vip.
type VIPs interface {
	Address(host string) (netip.Addr, error)
}

// Mapper maps services. It is safe for concurrent use.
//
// A service's ports have numbers of their own, to which the ports of the endpoints map. The number of a port is Options.ServicePort, or
// what the meta of most instances says, or the number that it had before, or the port of most instances, healthy or not.
// So clients need not care that instances come and go with other ports. The memory lasts until the service is gone; Restore
// fills it after a restart.
type Mapper struct {
	o    Options
	vips VIPs

	mu     sync.Mutex
	shapes map[string]shape    // by host: what was published last
	hosts  map[string][]string // by service that was mapped: its hosts in shapes
	claims map[string][]string // by DNS label: the services that want it, in order
}

// New returns a mapper. Without vips no service gets a virtual address.
func New(o Options, vips VIPs) (*Mapper, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &Mapper{
		o: o.WithDefaults(), vips: vips,
		shapes: map[string]shape{}, hosts: map[string][]string{}, claims: map[string][]string{},
	}, nil
}

// skips reports whether a service is left out by its name, so that it need not be read.
func (m *Mapper) skips(name string) bool {
	return name == "consul" || slices.ContainsFunc(m.o.Skip, func(pattern string) bool {
		ok, _ := path.Match(pattern, name)
		return ok
	})
}

// Service maps the service of that name, wherever it is: in has one element for each datacenter, namespace, partition and
// peer where it was found, in any order. Without in, the service is gone for good: nothing is returned, and what is
// remembered of it is forgotten. A service that has no instance, or no healthy one, becomes a ServiceEntry without
// endpoints. Nothing is returned for a service that consists of sidecars and gateways.
//
// A reject has no key: what was published of the service should stay, as it does behind a sink. Warnings say what was left out, and why.
func (m *Mapper) Service(name string, in []Service) (rs []*resource.Resource, rejects []sources.Reject, warnings []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.skips(name) {
		return nil, nil, nil
	}
	if len(in) == 0 {
		for _, host := range m.hosts[name] {
			delete(m.shapes, host)
		}
		delete(m.hosts, name)
		m.unclaim(name)
		return nil, nil, nil
	}
	w := &warner{}
	label, same := m.claim(name, w)
	if same {
		m.hosts[name] = nil
		return nil, nil, w.list()
	}
	var hosts []string
	for _, f := range m.families(name, label, in, w) {
		made, err := m.mapFamily(f, w)
		if err != nil {
			rejects = append(rejects, sources.Reject{Origin: resource.Origin{Place: f.place()}, Err: err})
			continue
		}
		hosts = append(hosts, f.host)
		rs = append(rs, made...)
	}
	for _, host := range m.hosts[name] {
		if !slices.Contains(hosts, host) && len(rejects) == 0 {
			delete(m.shapes, host)
		}
	}
	if len(rejects) == 0 {
		m.hosts[name] = hosts
	}
	return rs, rejects, w.list()
}

// Restore remembers the ports of ServiceEntries that this package made earlier, such as those that a sink holds when a
// source starts. What is already known is kept.
func (m *Mapper) Restore(rs []*resource.Resource) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for host, s := range shapesOf(rs) {
		if _, known := m.shapes[host]; !known {
			m.shapes[host] = s
		}
	}
}

// Names tells the mapper the names of all services, whenever these change. Names that are the same but for case or for
// characters that a host may not have clash: one gets the host, and others one with a hash in it. Of services that were known,
// those that have to be mapped again because of that are returned, in order. Without it, clashes are settled among the services that were
// mapped.
func (m *Mapper) Names(names []string) (again []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.identities()
	m.claims = map[string][]string{}
	for _, name := range names {
		if !m.skips(name) {
			l := labelOf(name)
			m.claims[l] = append(m.claims[l], name)
		}
	}
	for l, claimants := range m.claims {
		slices.Sort(claimants)
		m.claims[l] = slices.Compact(claimants)
	}
	for name, now := range m.identities() {
		if was, known := before[name]; known && was != now {
			again = append(again, name)
		}
	}
	slices.Sort(again)
	return again
}

// known reports whether a service was mapped before, if only to nothing.
func (m *Mapper) known(name string) bool {
	_, known := m.hosts[name]
	return known
}

// claim returns the DNS label of a service. same says that another name is for the same service: to Consul case does not matter,
// though it lists such names apart. Asked for either it answers with the instances of both.
func (m *Mapper) claim(name string, w *warner) (dns string, same bool) {
	l := labelOf(name)
	if !slices.Contains(m.claims[l], name) {
		m.claims[l] = append(m.claims[l], name)
		slices.Sort(m.claims[l])
	}
	first, best := winner(m.claims[l]), winner(alike(m.claims[l], name))
	dns = identify(l, name, first, best)
	about := "consul service " + name + ": "
	switch {
	case dns == "":
		w.add(about + "to Consul it is the same as " + quote(best) + ", and is served as that")
	case first != name:
		w.add(about + "its host would be that of " + quote(first) + ", and is " + quote(dns) + " therefore")
	}
	return dns, dns == ""
}

// identify returns the DNS label of a name among others that want the same, or nothing if another one stands for it.
func identify(label, name, first, best string) string {
	switch name {
	case first:
		return label
	case best:
		return names.Hashed(label, strings.ToLower(name), names.MaxLabel)
	}
	return ""
}

// alike returns those of names that differ from name by case at most.
func alike(names []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !strings.EqualFold(n, name) })
}

// identities returns what each name is known by.
func (m *Mapper) identities() map[string]string {
	all := map[string]string{}
	for l, names := range m.claims {
		first := winner(names)
		for _, name := range names {
			all[name] = identify(l, name, first, winner(alike(names, name)))
		}
	}
	return all
}

func (m *Mapper) unclaim(name string) {
	l := labelOf(name)
	m.claims[l] = slices.DeleteFunc(m.claims[l], func(n string) bool { return n == name })
	if len(m.claims[l]) == 0 {
		delete(m.claims, l)
	}
}

func winner(names []string) string {
	best := names[0]
	for _, name := range names[1:] {
		if rival(name, best) {
			best = name
		}
	}
	return best
}

func quote(s string) string { return "\"" + strings.ToValidUTF8(s, "?") + "\"" }
