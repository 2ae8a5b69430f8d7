package nacos

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"tributary/sources"
	"tributary/sources/nacos/client"
	"tributary/sources/nacos/mapping"
	"tributary/sources/registry"
)

// state is what is known of a Nacos. It does no I/O and has no clock. The mu of run guards it.
type state struct {
	mapper    *mapping.Mapper
	place     func(group, service string) string
	groups    map[string]*group
	services  map[key]*service
	names     map[mapping.ID]mapping.Name
	dirty     map[key]bool // services to publish
	suspicion registry.Suspicion
	session   int // of the connection, counted
	passed    map[string]passed
}

// passed is how many services of a group are not read.
type passed struct {
	dubbo  int
	others int // as the settings say
}

type key struct{ group, service string }

func (k key) String() string { return k.group + "@@" + k.service }

func (k key) compare(o key) int {
	return cmp.Or(cmp.Compare(k.group, o.group), cmp.Compare(k.service, o.service))
}

// keyOf reads what String wrote.
func keyOf(text string) key {
	group, service, _ := strings.Cut(text, "@@")
	return key{group, service}
}

// group is what is known of the names of a group's services.
type group struct {
	read    bool
	trouble error // with the last read
}

// service is what is known of one.
type service struct {
	settled   bool // its instances were read, or cannot be
	read      bool
	session   int // in which it was told of last
	listed    bool
	trouble   error
	instances []client.Instance
	dubbo     bool // some are of an application of Dubbo
	warnings  []string
	records   map[mapping.ID]record
	opaque    bool // an earlier run published it, and what cannot be told
}

// record is what is believed of one host of a service.
type record struct {
	registry.Record[mapping.Endpoint]
	instances int // that are listed, whatever they are
	port      mapping.Port
}

func newState(m *mapping.Mapper, groups []string, place func(group, service string) string) *state {
	s := &state{
		mapper: m, place: place, groups: map[string]*group{}, services: map[key]*service{}, names: map[mapping.ID]mapping.Name{},
		dirty: map[key]bool{}, passed: map[string]passed{},
	}
	for _, name := range groups {
		s.groups[name] = &group{}
	}
	return s
}

// restore remembers what an earlier run published of a service; nothing if that cannot be told.
func (s *state) restore(k key, all []mapping.Restored) {
	of := &service{settled: true, records: map[mapping.ID]record{}, opaque: len(all) == 0}
	for _, one := range all {
		if len(one.Endpoints) == 0 {
			of.records[s.mapper.RestoredID(one, mapping.Endpoint{})] = record{port: one.Port}
		}
		for _, e := range one.Endpoints {
			id := s.mapper.RestoredID(one, e)
			r := of.records[id]
			r.port = one.Port
			r.Endpoints = append(r.Endpoints, registry.Known[mapping.Endpoint]{Of: e})
			of.records[id] = r
		}
	}
	for _, r := range of.records { // of several hosts, each in its order
		slices.SortFunc(r.Endpoints, func(a, b registry.Known[mapping.Endpoint]) int { return a.Of.Compare(b.Of) })
	}
	s.services[k] = of
	s.dirty[k] = true
}

// withdraw has what an earlier run published of a service go: it is none of those to read now.
func (s *state) withdraw(k key) {
	s.services[k] = &service{settled: true, read: true}
	s.dirty[k] = true
}

// connected notes that there is a new connection: what is not listed from now on need not have gone.
func (s *state) connected(at time.Time, hold time.Duration) {
	s.session++
	s.suspicion = registry.Suspicion{From: at, Until: at.Add(hold)}
}

// disconnected notes that the connection has gone.
func (s *state) disconnected(at time.Time) { s.suspicion = s.suspicion.Away(at) }

// takeNames notes the names of all services of a group. What has a name no longer is believed to be empty only if the service itself said
// so, or by a new connection, which knows of nothing that is not listed.
func (s *state) takeNames(name string, all []string, err error) {
	g := s.groups[name]
	if g == nil {
		return
	}
	if g.trouble = err; err != nil {
		return
	}
	g.read = true
	there := make(map[string]bool, len(all))
	for _, one := range all {
		there[one] = true
		k := key{name, one}
		if s.services[k] == nil {
			s.services[k] = &service{}
		}
		s.services[k].listed = true
	}
	for k, of := range s.services {
		if k.group != name || there[k.service] {
			continue
		}
		of.listed = false
		if of.session != s.session {
			of.settled, of.read, of.session = true, true, s.session
			of.trouble, of.instances, of.warnings = nil, nil, nil
			s.dirty[k] = true
		}
	}
}

// takeInstances notes what a service has.
func (s *state) takeInstances(k key, all []client.Instance, warnings []string, err error) {
	of := s.services[k]
	if of == nil {
		return
	}
	of.settled, of.session = true, s.session
	if of.trouble = err; err != nil {
		return // what was known of it stays
	}
	of.read, of.opaque = true, false
	of.instances = slices.DeleteFunc(slices.Clone(all), ofDubbo)
	of.dubbo = len(of.instances) < len(all)
	of.warnings = warnings
	s.dirty[k] = true
}

// believe decides what counts of a service.
func (s *state) believe(k key, at time.Time, keep time.Duration) (t told) {
	of := s.services[k]
	for _, w := range of.warnings {
		t.warnings = append(t.warnings, s.place(k.group, k.service)+": "+w)
		t.left = append(t.left, sources.LeftOut{What: "an instance", Of: k.service, Why: w})
	}
	now := map[mapping.ID]*listed{}
	for id := range of.records {
		now[id] = &listed{}
	}
	for _, i := range of.instances {
		id := s.mapper.IDOf(k.group, k.service, i)
		if now[id] == nil {
			now[id] = &listed{}
		}
		l := now[id]
		l.all = append(l.all, i)
		e, err := s.mapper.Endpoint(i)
		if err != nil {
			t.warnings = append(t.warnings, s.place(k.group, k.service)+": "+err.Error())
			t.leave(k, i, err.Error())
			continue
		}
		l.endpoints = append(l.endpoints, e)
		switch {
		case !i.Enabled:
			t.leave(k, i, "disabled")
		case e.Weight == 0:
			t.leave(k, i, "weight 0")
		case i.Healthy:
			l.said = append(l.said, registry.Said[mapping.Endpoint]{Of: e, Is: registry.Listed})
			continue
		default:
			t.leave(k, i, "not healthy")
			continue
		}
		l.said = append(l.said, registry.Said[mapping.Endpoint]{Of: e, Is: registry.Off}) // somebody wants it not to be called
	}
	after := make(map[mapping.ID]record, len(now))
	t.explained = s.suspicion == registry.Suspicion{}
	for id, l := range now {
		before := of.records[id]
		t.explained = t.explained && before.Held == 0
		r, kept := record{instances: len(l.all)}, false
		before.Endpoints = l.place(before.Endpoints)
		r.Record, kept = before.Settle(registry.Reading[mapping.Endpoint]{
			Said: l.said, Unsaid: func(mapping.Endpoint) registry.Judgement { return registry.Missing },
			InDoubt: func(one registry.Known[mapping.Endpoint]) bool { return s.suspicion.Covers(one.Since, at) },
		}, mapping.Endpoint.Compare, at, keep)
		t.stay(r.Endpoints)
		// While something that is not listed is in doubt, the port is what it was.
		if r.port = before.port; r.Held == 0 || r.port.Number == 0 {
			r.port = s.mapper.PortOf(l.all, before.port)
		}
		// One that has instances, of which none can be called now, is kept as long as it has them.
		if kept || len(l.all) > 0 {
			after[id] = r
		}
	}
	of.records = after
	return t
}

// told is what there is to say of a service to people.
type told struct {
	warnings  []string
	left      []sources.LeftOut
	explained bool // see sources.Content
}

// stay takes back that endpoints are left out: in doubt they are served.
func (t *told) stay(endpoints []registry.Known[mapping.Endpoint]) {
	t.left = slices.DeleteFunc(t.left, func(l sources.LeftOut) bool {
		return slices.ContainsFunc(endpoints, func(e registry.Known[mapping.Endpoint]) bool {
			return l.What == net.JoinHostPort(e.Of.Address, strconv.Itoa(int(e.Of.Port)))
		})
	})
}

func (t *told) leave(k key, i client.Instance, why string) {
	t.left = append(t.left, sources.LeftOut{What: net.JoinHostPort(i.IP, strconv.Itoa(i.Port)), Of: k.service, Why: why})
}

// listed is what Nacos lists for one host.
type listed struct {
	all       []client.Instance
	endpoints []mapping.Endpoint // that they are, whether they are to be called or not
	said      []registry.Said[mapping.Endpoint]
}

// place returns what is known, with the clusters of what an earlier run published, as far as it is listed.
func (l *listed) place(known []registry.Known[mapping.Endpoint]) []registry.Known[mapping.Endpoint] {
	unknown := func(k registry.Known[mapping.Endpoint]) bool { return k.Of.Cluster == "" }
	if !slices.ContainsFunc(known, unknown) {
		return known
	}
	type spot struct {
		address string
		port    uint32
	}
	clusters := make(map[spot]string, len(l.endpoints))
	for _, e := range l.endpoints {
		clusters[spot{e.Address, e.Port}] = e.Cluster
	}
	known = slices.Clone(known)
	for n := range known {
		if e := &known[n].Of; e.Cluster == "" {
			e.Cluster = clusters[spot{e.Address, e.Port}]
		}
	}
	slices.SortFunc(known, func(a, b registry.Known[mapping.Endpoint]) int { return a.Of.Compare(b.Of) })
	return known
}

// rename gives all services their names, and has those published again of which it is another one.
func (s *state) rename() {
	owners := map[mapping.ID]key{}
	for k, of := range s.services {
		for id := range of.records {
			owners[id] = k
		}
	}
	s.names = registry.Rename(s.names, owners, s.mapper.Names, func(k key) { s.dirty[k] = true })
}

// entries returns what there is to publish of a service.
func (s *state) entries(k key) (all []mapping.Service) {
	of := s.services[k]
	for _, id := range slices.SortedFunc(maps.Keys(of.records), mapping.ID.Compare) {
		r := of.records[id]
		all = append(all, mapping.Service{ID: id, Name: s.names[id], Place: s.place(k.group, k.service), Port: r.port, Endpoints: r.Of()})
	}
	return all
}

// forget drops what nothing is left of.
func (s *state) forget(k key) {
	if of := s.services[k]; !of.listed && len(of.records) == 0 && !of.opaque {
		delete(s.services, k)
	}
}

// certain reports whether enough is known of a service to publish it.
func (s *state) certain(k key, at time.Time) bool {
	of := s.services[k]
	return of != nil && of.read && (!of.opaque || !at.Before(s.suspicion.Until))
}

// settled reports whether all that Nacos had at the start was read, or cannot be. One that cannot be read does not hold up the others; if
// it is all of them, we may not read it.
func (s *state) settled() bool {
	read := false
	for _, g := range s.groups {
		if !g.read && g.trouble == nil {
			return false
		}
		read = read || g.read
	}
	all, denied := 0, 0
	for _, of := range s.services {
		if !of.settled {
			return false
		}
		all++
		if of.trouble != nil && !of.read {
			denied++
		}
	}
	return read && (all == 0 || denied < all)
}

// complete reports whether every group was read.
func (s *state) complete() bool {
	for _, g := range s.groups {
		if !g.read {
			return false
		}
	}
	return true
}

// held is how many endpoints stay that are not listed.
func (s *state) held() (n int) {
	for _, of := range s.services {
		for _, r := range of.records {
			n += r.Held
		}
	}
	return n
}

// troubles names what cannot be read, the first of the services. all says that it is everything.
func (s *state) troubles() (texts []string, all bool, first error) {
	groups, services := 0, 0
	for _, name := range slices.Sorted(maps.Keys(s.groups)) {
		if t := s.groups[name].trouble; t != nil {
			groups++
			texts = append(texts, t.Error())
			first = cmp.Or(first, t)
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(s.services), key.compare) {
		if t := s.services[k].trouble; t != nil {
			if services++; services == 1 {
				texts = append(texts, t.Error())
			}
			first = cmp.Or(first, t)
		}
	}
	if services > 1 {
		texts = append(texts, fmt.Sprintf("and %d more services", services-1))
	}
	return texts, groups > 0 && groups == len(s.groups) || services > 0 && services == len(s.services), first
}

// nothing says that nothing is served of some place, and what there is instead; empty if something is. Nacos answers the same for what does
// not exist, and for what is empty.
func (s *state) nothing(place string) string {
	var all passed
	for _, p := range s.passed {
		all.dubbo += p.dubbo
		all.others += p.others
	}
	empty := 0
	for _, of := range s.services {
		switch {
		case len(of.records) > 0 || of.opaque:
			return ""
		case of.dubbo:
			all.dubbo++
		default:
			empty++
		}
	}
	var instead []string
	if all.dubbo > 0 {
		instead = append(instead, fmt.Sprintf("%d of Dubbo, which an address without kind=services is for", all.dubbo))
	}
	if all.others > 0 {
		instead = append(instead, fmt.Sprintf("%d that the settings do not select", all.others))
	}
	if empty > 0 {
		instead = append(instead, fmt.Sprintf("%d without an instance", empty))
	}
	if len(instead) == 0 {
		return "there is no service in " + place
	}
	return "nothing is served: the services in " + place + " are " + strings.Join(instead, ", ")
}
