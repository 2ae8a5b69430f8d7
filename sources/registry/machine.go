package registry

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"tributary/resource"
	"tributary/sources"
)

// Offer is what one instance is for one service.
type Offer[ID comparable] struct {
	ID       ID
	Owner    string   // its application, where the registry has such
	Endpoint Endpoint // without an address if it cannot be called
	State    State
	Why      string // it is not served; empty if that need not be said
	Port     uint32 // on which clients are to find the service; 0 if it does not say
	Protocol string // Istio's
}

func (o Offer[ID]) same(p Offer[ID]) bool {
	return o.ID == p.ID && o.Owner == p.Owner && o.State == p.State && o.Why == p.Why && o.Port == p.Port && o.Protocol == p.Protocol &&
		o.Endpoint.Same(p.Endpoint)
}

// Offers are all that a registry lists for one group.
type Offers[ID comparable] struct {
	All      []Offer[ID]       // for one endpoint the first one that is listed counts
	Warnings []string          // for people
	LeftOut  []sources.LeftOut // of instances that can be called nowhere
}

// ServiceID is what services are told apart by.
type ServiceID[ID any] interface {
	comparable
	Compare(other ID) int
	Group() string // in which it is published
}

// Mapping is what services of a registry become. It is pure.
type Mapping[ID comparable] interface {
	// Host is what hosts are told apart by: the ID of a service without what its ports differ in.
	Host(id ID) ID
	// Names gives each of all hosts a name of its own. The order does not matter.
	Names(hosts []ID) map[ID]Name
	// Place says to people where a service or host is.
	Place(id ID) string
	// ServicePort is the port that is configured for a service; 0 if none is.
	ServicePort(id ID) int
	// Entries returns the objects of the services of a host, which are in order, and so are their endpoints, each once. An error is about
	// some of them.
	Entries(host []Service[ID]) (rs []*resource.Resource, warnings []string, err error)
	// Restore reads what Entries made, by whatever options. The IDs are those that the services have now.
	Restore(published []*resource.Resource) []Service[ID]
}

// Machine is what is believed of the services of one registry.
type Machine[ID ServiceID[ID]] struct {
	// Explained says that the registry itself proves that what it does not list has gone. See sources.Content.
	Explained bool

	mapping Mapping[ID]
	keep    func(ID) time.Duration // services without endpoints
	moved   func(id ID, before, after []Known[Endpoint])
	until   func(ID, Known[Endpoint]) time.Time
	groups  map[string]*group[ID]
	names   map[ID]Name
	dirty   map[string]bool // groups to settle
}

// group is what is published together.
type group[ID comparable] struct {
	read      bool // something was taken
	offers    Offers[ID]
	unknown   *Known[Endpoint] // an earlier run published what cannot be told; nil if it did not
	current   bool             // it is published, but for what its services have
	services  map[ID]*service
	left      []sources.LeftOut
	explained bool
	next      time.Time // when it is to be settled again; zero if nothing changes by itself
}

// service is what is believed of one.
type service struct {
	endpoints []Known[Endpoint] // in order
	held      int               // of these, that are not listed, and stay for now
	empty     time.Time         // since when nobody is there; zero if somebody is
	port      Port
	owners    []string
}

// NewMachine returns a machine that knows of nothing. keep says for how long a service without endpoints is kept. until says until when an
// endpoint stays that is not listed; it has gone if that is not in the future. What is in doubt is for the registry to know: one that
// proves nothing about a connection, or about a single instance, says so here.
func NewMachine[ID ServiceID[ID]](m Mapping[ID], keep func(ID) time.Duration, until func(ID, Known[Endpoint]) time.Time) *Machine[ID] {
	return &Machine[ID]{
		mapping: m, keep: keep, until: until, moved: func(ID, []Known[Endpoint], []Known[Endpoint]) {},
		groups: map[string]*group[ID]{}, dirty: map[string]bool{},
	}
}

// Restore remembers what an earlier run published as a group. Services that are not selected any more go, and are known of no more; all of
// a group that cannot be told stays until something is listed for it, or until nothing is in doubt.
func (m *Machine[ID]) Restore(name string, published []*resource.Resource, selected func(Service[ID]) bool) {
	all := m.mapping.Restore(published)
	g := m.group(name)
	if len(all) == 0 {
		g.unknown = &Known[Endpoint]{}
	}
	for _, one := range all {
		if !selected(one) {
			continue
		}
		of := m.group(one.ID.Group()).service(one.ID)
		of.port = one.Port
		of.owners = unique(append(of.owners, one.Owners...))
		before := of.endpoints
		for _, e := range one.Endpoints {
			of.endpoints = append(of.endpoints, Known[Endpoint]{Value: e})
		}
		compare := func(a, b Known[Endpoint]) int { return a.Value.Compare(b.Value) }
		slices.SortStableFunc(of.endpoints, compare)
		of.endpoints = slices.CompactFunc(of.endpoints, func(a, b Known[Endpoint]) bool { return compare(a, b) == 0 })
		m.moved(one.ID, before, of.endpoints)
	}
}

func unique(all []string) []string { return slices.Compact(slices.Sorted(slices.Values(all))) }

func (m *Machine[ID]) group(name string) *group[ID] {
	g := m.groups[name]
	if g == nil {
		g = &group[ID]{services: map[ID]*service{}}
		m.groups[name] = g
	}
	m.dirty[name] = true
	return g
}

func (g *group[ID]) service(id ID) *service {
	if g.services[id] == nil {
		g.services[id] = &service{}
	}
	return g.services[id]
}

// Take notes all that is listed for a group.
func (m *Machine[ID]) Take(name string, all Offers[ID]) {
	g := m.groups[name]
	warned := g != nil && slices.Equal(g.offers.Warnings, all.Warnings)
	if warned && g.read && slices.Equal(g.offers.LeftOut, all.LeftOut) && slices.EqualFunc(g.offers.All, all.All, Offer[ID].same) {
		return
	}
	g = m.group(name)
	g.read, g.offers, g.current = true, all, g.current && warned
}

// TakeAll notes all that a registry lists: what has no group in it is not listed.
func (m *Machine[ID]) TakeAll(all map[string]Offers[ID]) {
	for name := range m.groups {
		if _, there := all[name]; !there {
			m.Take(name, Offers[ID]{})
		}
	}
	for name, offers := range all {
		m.Take(name, offers)
	}
}

// Follow has moved called with the endpoints of each service that are believed, and with those that were.
func (m *Machine[ID]) Follow(moved func(id ID, before, after []Known[Endpoint])) { m.moved = moved }

// Touch has a group settled again though what is listed for it is as before.
func (m *Machine[ID]) Touch(name string) {
	if m.groups[name] != nil {
		m.dirty[name] = true
	}
}

// Reconsider has everything settled again that is not listed and stays.
func (m *Machine[ID]) Reconsider() {
	for name, g := range m.groups {
		if g.unknown != nil || slices.ContainsFunc(slices.Collect(maps.Values(g.services)), func(s *service) bool { return s.held > 0 }) {
			m.dirty[name] = true
		}
	}
}

// Contents settles what changed or is due, and returns the groups that are to be published.
func (m *Machine[ID]) Contents(at time.Time) (all []sources.Content) {
	for name, g := range m.groups {
		if !g.next.IsZero() && !at.Before(g.next) {
			m.dirty[name] = true
		}
	}
	var changed []string
	for name := range m.dirty {
		if g := m.groups[name]; g.read {
			delete(m.dirty, name)
			if m.settle(g, at) {
				changed = append(changed, name)
			}
		}
	}
	if len(changed) == 0 {
		return nil
	}
	for _, name := range unique(append(changed, m.rename()...)) {
		g := m.groups[name]
		if !g.read || g.unknown != nil {
			continue
		}
		all = append(all, m.content(name, g))
		if len(g.services)+len(g.offers.All)+len(g.offers.LeftOut)+len(g.offers.Warnings) == 0 {
			delete(m.groups, name)
		}
	}
	return all
}

// settle decides what is believed of a group, and reports whether it is to be published.
func (m *Machine[ID]) settle(g *group[ID], at time.Time) (changed bool) {
	g.next = time.Time{}
	if g.unknown != nil {
		if g.unknown.Missing.IsZero() {
			g.unknown.Missing = at
		}
		if until := m.until(*new(ID), *g.unknown); len(g.offers.All) == 0 && at.Before(until) {
			g.next = until
			return false
		}
		g.unknown = nil
	}
	by := make(map[ID][]Offer[ID], len(g.services))
	for id := range g.services {
		by[id] = nil
	}
	for _, o := range g.offers.All {
		by[o.ID] = append(by[o.ID], o)
	}
	changed, g.current = !g.current, true
	left := slices.Clone(g.offers.LeftOut)
	g.explained = m.Explained
	for id, offers := range by {
		before, known := g.services[id]
		if !known {
			before = &service{}
		}
		after, next := m.believe(id, before, offers, at)
		m.moved(id, before.endpoints, after.endpoints)
		g.explained = g.explained && before.held == 0
		for _, o := range offers {
			if o.Why != "" && !after.serves(o.Endpoint) {
				left = append(left, sources.LeftOut{What: o.Endpoint.String(), Of: o.Owner, Why: o.Why})
			}
		}
		// Nobody is there, and that for long, or it is a service of which nothing is known but that its instances cannot be read.
		if over := !after.empty.IsZero() && !at.Before(next); over || !known && !after.empty.IsZero() {
			delete(g.services, id)
			changed = changed || known
			continue
		}
		g.services[id], g.next = after, Earlier(g.next, next)
		changed = changed || !known || after.differs(before)
	}
	slices.SortFunc(left, func(a, b sources.LeftOut) int {
		return cmp.Or(cmp.Compare(a.Of, b.Of), cmp.Compare(a.What, b.What), cmp.Compare(a.Why, b.Why))
	})
	changed = changed || !slices.Equal(left, g.left)
	g.left = left
	return changed
}

// believe decides what is believed of a service, and when that has to be decided again.
func (m *Machine[ID]) believe(id ID, before *service, offers []Offer[ID], at time.Time) (after *service, next time.Time) {
	l := Listing[Endpoint]{Until: func(k Known[Endpoint]) time.Time { return m.until(id, k) }}
	ports, there := newPorts(m.mapping.ServicePort(id)), false
	var owners []string
	for _, o := range offers {
		there = there || o.State != Unreadable
		ports.add(o.Endpoint.Port, o.Port, o.Protocol)
		if o.Endpoint.Address != "" {
			l.Reports = append(l.Reports, Report[Endpoint]{o.Endpoint, o.State})
		}
		if o.Owner != "" {
			owners = append(owners, o.Owner)
		}
	}
	after = &service{port: before.port, owners: before.owners}
	if len(owners) > 0 {
		after.owners = unique(owners)
	}
	after.endpoints, after.held, next = l.Settle(before.endpoints, Endpoint.Compare, at)
	// While something that is not listed is in doubt, the port is what it was.
	if after.held == 0 || after.port.Number == 0 {
		after.port = ports.port(before.port)
	}
	// One that has instances, of which none can be called now, is not empty.
	keep := m.keep(id)
	if after.empty, _ = Empty(before.empty, there || len(after.endpoints) > 0, at, keep); !after.empty.IsZero() {
		next = after.empty.Add(keep)
	}
	return after, next
}

// serves reports whether an endpoint is believed.
func (s *service) serves(e Endpoint) bool {
	_, there := slices.BinarySearchFunc(s.endpoints, e, func(k Known[Endpoint], e Endpoint) int { return k.Value.Compare(e) })
	return there
}

// differs reports whether something is to be published of a service, or is held or no longer.
func (s *service) differs(o *service) bool {
	return s.port != o.port || s.held != o.held || !slices.Equal(s.owners, o.owners) ||
		!slices.EqualFunc(s.endpoints, o.endpoints, func(a, b Known[Endpoint]) bool { return a.Value.Same(b.Value) })
}

// rename gives hosts their names if others are there than before, and returns the groups with one that has another name now.
func (m *Machine[ID]) rename() (groups []string) {
	hosts, same := map[ID]bool{}, true
	for _, g := range m.groups {
		for id := range g.services {
			host := m.mapping.Host(id)
			_, known := m.names[host]
			hosts[host], same = true, same && known
		}
	}
	if same && len(hosts) == len(m.names) {
		return nil
	}
	before := m.names
	m.names = m.mapping.Names(slices.Collect(maps.Keys(hosts)))
	for host, name := range m.names {
		if was, there := before[host]; there && was != name {
			groups = append(groups, host.Group())
		}
	}
	return groups
}

// content is what is published of a group.
func (m *Machine[ID]) content(name string, g *group[ID]) sources.Content {
	c := sources.Content{Group: name, LeftOut: g.left, Warnings: slices.Clone(g.offers.Warnings), Explained: g.explained}
	ids := slices.SortedFunc(maps.Keys(g.services), ID.Compare)
	for len(ids) > 0 {
		host, n := m.mapping.Host(ids[0]), 0
		var all []Service[ID]
		for ; n < len(ids) && m.mapping.Host(ids[n]) == host; n++ {
			of := g.services[ids[n]]
			s := Service[ID]{ID: ids[n], Name: m.names[host], Owners: of.owners, Port: of.port}
			for _, k := range of.endpoints {
				s.Endpoints = append(s.Endpoints, k.Value)
			}
			all = append(all, s)
		}
		ids = ids[n:]
		rs, warned, err := m.mapping.Entries(all)
		add(&c, m.mapping.Place(host), warned, err, rs...)
	}
	return tidy(c)
}

// Hosts calls f with each service of a group, and with the name of its host.
func (m *Machine[ID]) Hosts(group string, f func(ID, Name)) {
	if g := m.groups[group]; g != nil {
		for id := range g.services {
			f(id, m.names[m.mapping.Host(id)])
		}
	}
}

// Next is when there is something to settle, which may be in the past: the zero time if nothing changes by itself.
func (m *Machine[ID]) Next() (next time.Time) {
	for name := range m.dirty {
		if m.groups[name].read {
			return time.Unix(0, 0)
		}
	}
	for _, g := range m.groups {
		next = Earlier(next, g.next)
	}
	return next
}

// Services is how many services there are, those without endpoints too, and Held how many endpoints stay that are not listed.
func (m *Machine[ID]) Services() (services, held int) {
	for _, g := range m.groups {
		if g.unknown != nil {
			services++
		}
		for _, s := range g.services {
			services++
			held += s.held
		}
	}
	return services, held
}

// Endpoints calls f with each endpoint that is believed.
func (m *Machine[ID]) Endpoints(f func(ID, Known[Endpoint])) {
	for _, g := range m.groups {
		for id, s := range g.services {
			for _, k := range s.endpoints {
				f(id, k)
			}
		}
	}
}
