package registry

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/presence"
)

// Offer is an instance's endpoint of one service.
type Offer[ID comparable] struct {
	ID       ID
	Owner    string   // its application; empty if the registry has no applications
	Endpoint Endpoint // without an address if it cannot be called
	State    presence.State
	Why      string // the endpoint is not served; empty if that is not reported
	Port     uint32 // for clients of the service; 0 if the instance names none
	Protocol string // the name of the protocol in Istio
}

func (o Offer[ID]) same(other Offer[ID]) bool {
	return o.ID == other.ID && o.Owner == other.Owner && o.State == other.State && o.Why == other.Why &&
		o.Port == other.Port &&
		o.Protocol == other.Protocol &&
		o.Endpoint.Same(other.Endpoint)
}

// Offers are all that a registry lists for one group.
type Offers[ID comparable] struct {
	All      []Offer[ID]       // of several listed offers of one endpoint the first counts
	Warnings []string          // for people
	LeftOut  []sources.LeftOut // instances without an endpoint
}

// ServiceID identifies services.
type ServiceID[ID any] interface {
	comparable
	Compare(other ID) int
	Group() string  // the group that publishes it
	String() string // different for each host
}

// Mapping makes objects of the services of a registry. It is pure.
type Mapping[ID comparable] interface {
	// Host identifies a host: the ID of a service without the parts that only distinguish its ports.
	Host(id ID) ID
	// Names gives each of all hosts a unique name. The order of hosts does not matter.
	Names(hosts []ID) map[ID]Name
	// Place names the place of a service or host in messages.
	Place(id ID) string
	// ServicePort is the port that is configured for a service; 0 if none is.
	ServicePort(id ID) int
	// Entries returns the objects of the services of a host. Services and their endpoints are sorted, each endpoint
	// appears once. An error may concern only some of them.
	Entries(host []Service[ID]) (rs []*resource.Resource, warnings []string, err error)
	// Restore reads objects that Entries made, also by other options. The IDs are those that the services have now.
	Restore(published []*resource.Resource) []Service[ID]
}

// Machine decides which services and endpoints of one registry are served.
type Machine[ID ServiceID[ID]] struct {
	// RemovalsObserved says that the registry itself proves that unlisted endpoints have gone. See sources.Content.
	RemovalsObserved bool
	Suspicion        presence.Suspicion // the suspicion about the registry

	mapping  Mapping[ID]
	keep     func(ID) time.Duration // how long a service without endpoints stays
	deadline func(ID, Known) time.Time
	groups   map[string]*group[ID]
	names    map[ID]Name
	dirty    map[string]bool // groups to update
}

// Known is an endpoint that the registry lists, or listed.
type Known = presence.Item[Endpoint]

// group is a unit of publishing.
type group[ID comparable] struct {
	read             bool // offers were taken
	offers           Offers[ID]
	unknown          *Known // stands for content of an earlier run that cannot be read; nil if there is none
	current          bool   // it is published, apart from changes of its services
	services         map[ID]*service
	leftOut          []sources.LeftOut
	removalsObserved bool
	next             time.Time // of the next update; zero without one
}

// service is a service with the endpoints that are served.
type service struct {
	endpoints  []Known   // sorted
	held       int       // unlisted endpoints that stay for now
	emptySince time.Time // when the last endpoint went; zero while there is one
	port       Port
	owners     []string
}

// NewMachine returns an empty machine. keep returns for how long a service without endpoints is kept. deadline returns
// when to drop an endpoint that is no longer listed; nil: when the suspicion ends.
func NewMachine[ID ServiceID[ID]](mapping Mapping[ID], keep func(ID) time.Duration,
	deadline func(ID, Known) time.Time,
) *Machine[ID] {
	created := &Machine[ID]{
		mapping: mapping, keep: keep, deadline: deadline,
		groups: map[string]*group[ID]{}, dirty: map[string]bool{},
	}
	if deadline == nil {
		created.deadline = func(_ ID, endpoint Known) time.Time {
			return created.Suspicion.Deadline(endpoint.FirstListed, endpoint.Missing)
		}
	}
	return created
}

// Restore takes back a group that an earlier run published, without services that are no longer selected; nil selects
// all. A group that cannot be read stays until something is listed for it, or until its hold ends.
func (m *Machine[ID]) Restore(name string, published []*resource.Resource, selected func(Service[ID]) bool) {
	services := m.mapping.Restore(published)
	g := m.group(name)
	if len(services) == 0 {
		g.unknown = &Known{}
	}
	for _, service := range services {
		if selected != nil && !selected(service) {
			continue
		}
		state := m.group(service.ID.Group()).service(service.ID)
		state.port = service.Port
		state.owners = unique(append(state.owners, service.Owners...))
		for _, e := range service.Endpoints {
			state.endpoints = append(state.endpoints, Known{Value: e})
		}
		compare := func(a, b Known) int { return a.Value.Compare(b.Value) }
		slices.SortStableFunc(state.endpoints, compare)
		state.endpoints = slices.CompactFunc(state.endpoints, func(a, b Known) bool { return compare(a, b) == 0 })
	}
}

func unique(texts []string) []string { return slices.Compact(slices.Sorted(slices.Values(texts))) }

func (m *Machine[ID]) group(name string) *group[ID] {
	current := m.groups[name]
	if current == nil {
		current = &group[ID]{services: map[ID]*service{}}
		m.groups[name] = current
	}
	m.dirty[name] = true
	return current
}

func (g *group[ID]) service(id ID) *service {
	if g.services[id] == nil {
		g.services[id] = &service{}
	}
	return g.services[id]
}

// Take stores all offers of a group.
func (m *Machine[ID]) Take(name string, offers Offers[ID]) {
	group := m.groups[name]
	warned := group != nil && slices.Equal(group.offers.Warnings, offers.Warnings)
	if warned && group.read && slices.Equal(group.offers.LeftOut, offers.LeftOut) &&
		slices.EqualFunc(group.offers.All, offers.All, Offer[ID].same) {
		return
	}
	group = m.group(name)
	group.read, group.offers, group.current = true, offers, group.current && warned
}

// TakeAll stores all offers of a registry. A group without offers is not listed.
func (m *Machine[ID]) TakeAll(groups map[string]Offers[ID]) {
	for name := range m.groups {
		if _, listed := groups[name]; !listed {
			m.Take(name, Offers[ID]{})
		}
	}
	for name, offers := range groups {
		m.Take(name, offers)
	}
}

// Touch updates a group again although its offers are as before.
func (m *Machine[ID]) Touch(name string) {
	if m.groups[name] != nil {
		m.dirty[name] = true
	}
}

// Reconsider updates all groups with unlisted endpoints that stay.
func (m *Machine[ID]) Reconsider() {
	for name, g := range m.groups {
		if g.unknown != nil || slices.ContainsFunc(slices.Collect(maps.Values(g.services)),
			func(s *service) bool { return s.held > 0 }) {
			m.dirty[name] = true
		}
	}
}

// Leave notes that the registry is away.
func (m *Machine[ID]) Leave(now time.Time) { m.Suspicion = m.Suspicion.Leave(now) }

// Return begins a suspicion: the registry is back, and instances may still register again. All holds end later by the
// pause, since no instance could register meanwhile.
func (m *Machine[ID]) Return(now time.Time, hold time.Duration) (pause time.Duration) {
	pause = m.Suspicion.AwayFor(now)
	m.Suspicion = presence.Suspect(now, hold, "")
	for _, group := range m.groups {
		if group.unknown != nil && !group.unknown.Missing.IsZero() {
			group.unknown.Missing = group.unknown.Missing.Add(pause)
		}
		for _, s := range group.services {
			presence.Postpone(s.endpoints, pause)
		}
	}
	m.Reconsider()
	return pause
}

// Absence is an endpoint that went missing and stays, or a group of an earlier run that cannot be read.
type Absence[ID any] struct {
	Group    string    `json:"group"`
	Service  ID        `json:"service"`
	Endpoint string    `json:"endpoint,omitempty"` // empty for a group
	Missing  time.Time `json:"missing"`
}

// Absences returns the missing items that stay, in order, for Recall of the next run.
func (m *Machine[ID]) Absences() (absences []Absence[ID]) {
	for name, group := range m.groups {
		if group.unknown != nil && !group.unknown.Missing.IsZero() {
			absences = append(absences, Absence[ID]{Group: name, Missing: group.unknown.Missing})
		}
		for id, service := range group.services {
			if service.held == 0 {
				continue
			}
			for _, k := range service.endpoints {
				if !k.Missing.IsZero() {
					absences = append(absences, Absence[ID]{name, id, k.Value.String(), k.Missing})
				}
			}
		}
	}
	slices.SortFunc(absences, func(a, b Absence[ID]) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), a.Service.Compare(b.Service), cmp.Compare(a.Endpoint, b.Endpoint))
	})
	return absences
}

// Recall takes back the absences of an earlier run, after Restore.
func (m *Machine[ID]) Recall(absences []Absence[ID], now time.Time) {
	for _, absence := range absences {
		group := m.groups[absence.Group]
		switch {
		case group == nil:
		case absence.Endpoint == "" && group.unknown != nil:
			group.unknown.Missing = presence.RestoredTime(absence.Missing, now)
		case group.services[absence.Service] != nil:
			service := group.services[absence.Service]
			for n, k := range service.endpoints {
				if k.Value.String() == absence.Endpoint && k.Missing.IsZero() {
					service.endpoints[n].Missing = presence.RestoredTime(absence.Missing, now)
					service.held++
				}
			}
		}
	}
}

// Note is the state that a run stores for the next one.
type Note[ID any] struct {
	Away    time.Time     `json:"away,omitzero"`
	Missing []Absence[ID] `json:"missing,omitempty"`
}

// Note returns the note.
func (m *Machine[ID]) Note() Note[ID] { return Note[ID]{m.Suspicion.Away, m.Absences()} }

// Resume takes back the note of an earlier run, after Restore. Until a source connects, its registry counts as away.
func (m *Machine[ID]) Resume(sink sources.Sink, now time.Time) {
	var note Note[ID]
	RecallNote(sink, &note)
	m.Recall(note.Missing, now)
	m.Suspicion.Away = presence.RestoredTime(cmp.Or(note.Away, now), now)
}

// Contents updates the groups that changed or are due, and returns those to publish.
func (m *Machine[ID]) Contents(now time.Time) (contents []sources.Content) {
	for name, g := range m.groups {
		if !g.next.IsZero() && !now.Before(g.next) {
			m.dirty[name] = true
		}
	}
	var changed []string
	for name := range m.dirty {
		if g := m.groups[name]; g.read {
			delete(m.dirty, name)
			if m.updateGroup(g, now) {
				changed = append(changed, name)
			}
		}
	}
	m.Suspicion = m.Suspicion.Expire(now)
	if len(changed) == 0 {
		return nil
	}
	for _, name := range unique(append(changed, m.rename()...)) {
		group := m.groups[name]
		if !group.read || group.unknown != nil {
			continue
		}
		contents = append(contents, m.content(name, group))
		if len(group.services)+len(group.offers.All)+len(group.offers.LeftOut)+len(group.offers.Warnings) == 0 {
			delete(m.groups, name)
		}
	}
	return contents
}

// updateGroup updates the services of a group, and reports whether to publish it.
func (m *Machine[ID]) updateGroup(group *group[ID], now time.Time) (changed bool) {
	group.next = time.Time{}
	if group.unknown != nil {
		if group.unknown.Missing.IsZero() {
			group.unknown.Missing = now
		}
		if deadline := m.deadline(*new(ID), *group.unknown); len(group.offers.All) == 0 && now.Before(deadline) {
			group.next = deadline
			return false
		}
		group.unknown = nil
	}
	byService := make(map[ID][]Offer[ID], len(group.services))
	for id := range group.services {
		byService[id] = nil
	}
	for _, o := range group.offers.All {
		byService[o.ID] = append(byService[o.ID], o)
	}
	changed, group.current = !group.current, true
	leftOut := slices.Clone(group.offers.LeftOut)
	group.removalsObserved = m.RemovalsObserved
	for id, offers := range byService {
		before, existed := group.services[id]
		if !existed {
			before = &service{}
		}
		after, next := m.updateService(id, before, offers, now)
		group.removalsObserved = group.removalsObserved && before.held == 0
		for _, o := range offers {
			if o.Why != "" && !after.serves(o.Endpoint) {
				leftOut = append(leftOut, sources.LeftOut{What: o.Endpoint.String(), Of: o.Owner, Why: o.Why})
			}
		}
		// Drop services empty longer than keep, and new ones with only unreadable instances.
		if empty := !after.emptySince.IsZero(); empty && (!existed || !now.Before(next)) {
			delete(group.services, id)
			changed = changed || existed
			continue
		}
		group.services[id], group.next = after, presence.Earlier(group.next, next)
		changed = changed || !existed || after.differs(before)
	}
	slices.SortFunc(leftOut, func(a, b sources.LeftOut) int {
		return cmp.Or(cmp.Compare(a.Of, b.Of), cmp.Compare(a.What, b.What), cmp.Compare(a.Why, b.Why))
	})
	changed = changed || !slices.Equal(leftOut, group.leftOut)
	group.leftOut = leftOut
	return changed
}

// updateService returns a service after its offers, and when to update it again.
func (m *Machine[ID]) updateService(id ID, before *service, offers []Offer[ID], now time.Time) (after *service,
	next time.Time,
) {
	var reports []presence.Report[Endpoint]
	ports, exists := newPorts(m.mapping.ServicePort(id)), false
	var owners []string
	for _, offer := range offers {
		exists = exists || offer.State != presence.Unreadable
		ports.add(offer.Endpoint.Port, offer.Port, offer.Protocol)
		if offer.Endpoint.Address != "" {
			reports = append(reports, presence.Report[Endpoint]{Value: offer.Endpoint, State: offer.State})
		}
		if offer.Owner != "" {
			owners = append(owners, offer.Owner)
		}
	}
	after = &service{port: before.port, owners: before.owners}
	if len(owners) > 0 {
		after.owners = unique(owners)
	}
	after.endpoints, after.held, next = presence.Fold(before.endpoints, reports, Endpoint.Compare,
		func(endpoint Known) time.Time { return m.deadline(id, endpoint) }, now)
	// While unlisted endpoints stay, the port does not change.
	if after.held == 0 || after.port.Number == 0 {
		after.port = ports.port(before.port)
	}
	// A service is not empty while it has instances, even if none can be called now.
	if !exists && len(after.endpoints) == 0 {
		after.emptySince = cmp.Or(before.emptySince, now)
		next = after.emptySince.Add(m.keep(id))
	}
	return after, next
}

// serves reports whether the service has an endpoint.
func (s *service) serves(e Endpoint) bool {
	_, exists := slices.BinarySearchFunc(s.endpoints, e,
		func(k Known, e Endpoint) int { return k.Value.Compare(e) })
	return exists
}

// differs reports whether a service must be published again.
func (s *service) differs(o *service) bool {
	return s.port != o.port || s.held != o.held || !slices.Equal(s.owners, o.owners) ||
		!slices.EqualFunc(s.endpoints, o.endpoints, func(a, b Known) bool { return a.Value.Same(b.Value) })
}

// rename names the hosts again if they changed, and returns the groups of hosts with another name.
func (m *Machine[ID]) rename() (groups []string) {
	hosts, same := map[ID]bool{}, true
	for _, g := range m.groups {
		for id := range g.services {
			host := m.mapping.Host(id)
			_, isNamed := m.names[host]
			hosts[host], same = true, same && isNamed
		}
	}
	if same && len(hosts) == len(m.names) {
		return nil
	}
	before := m.names
	m.names = m.mapping.Names(slices.Collect(maps.Keys(hosts)))
	for host, name := range m.names {
		if former, exists := before[host]; exists && former != name {
			groups = append(groups, host.Group())
		}
	}
	return groups
}

// content returns the content of a group for the sink.
func (m *Machine[ID]) content(name string, group *group[ID]) sources.Content {
	content := sources.Content{
		Group: name, LeftOut: group.leftOut, Warnings: slices.Clone(group.offers.Warnings),
		RemovalsObserved: group.removalsObserved,
	}
	ids := slices.SortedFunc(maps.Keys(group.services), ID.Compare)
	for len(ids) > 0 {
		host, n := m.mapping.Host(ids[0]), 0
		var services []Service[ID]
		for ; n < len(ids) && m.mapping.Host(ids[n]) == host; n++ {
			state := group.services[ids[n]]
			service := Service[ID]{ID: ids[n], Name: m.names[host], Owners: state.owners, Port: state.port}
			for _, k := range state.endpoints {
				service.Endpoints = append(service.Endpoints, k.Value)
			}
			services = append(services, service)
		}
		ids = ids[n:]
		rs, warned, err := m.mapping.Entries(services)
		add(&content, m.mapping.Place(host), warned, err, rs...)
	}
	return tidy(content)
}

// Hosts calls visit with each service of a group, and with the name of its host.
func (m *Machine[ID]) Hosts(group string, visit func(ID, Name)) {
	if g := m.groups[group]; g != nil {
		for id := range g.services {
			visit(id, m.names[m.mapping.Host(id)])
		}
	}
}

// Next returns when the next update is due, perhaps in the past; the zero time without one.
func (m *Machine[ID]) Next() (next time.Time) {
	for name := range m.dirty {
		if m.groups[name].read {
			return time.Unix(0, 0)
		}
	}
	next = m.Suspicion.Next()
	for _, g := range m.groups {
		next = presence.Earlier(next, g.next)
	}
	return next
}

// Services counts the services, also those without endpoints, and the unlisted endpoints that stay.
func (m *Machine[ID]) Services() (services, held int) {
	for _, group := range m.groups {
		if group.unknown != nil {
			services++
		}
		for _, s := range group.services {
			services++
			held += s.held
		}
	}
	return services, held
}

// HeldServices returns the places of the services with unlisted endpoints that stay, in order.
func (m *Machine[ID]) HeldServices() (places []string) {
	for _, g := range m.groups {
		for id, s := range g.services {
			if s.held > 0 {
				places = append(places, m.mapping.Place(id))
			}
		}
	}
	return unique(places)
}

// Unconfirmed returns the groups with unlisted endpoints that stay, and how many these are, for Batch.
func (m *Machine[ID]) Unconfirmed() (reasons map[string]string) {
	for name, group := range m.groups {
		held := 0
		for _, service := range group.services {
			held += service.held
		}
		if held > 0 {
			if reasons == nil {
				reasons = make(map[string]string)
			}
			reasons[name] = unlistedText(held)
		}
	}
	return reasons
}

// Endpoints calls visit with each endpoint.
func (m *Machine[ID]) Endpoints(visit func(ID, Known)) {
	for _, g := range m.groups {
		for id, s := range g.services {
			for _, k := range s.endpoints {
				visit(id, k)
			}
		}
	}
}
