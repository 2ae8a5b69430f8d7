package dubbo

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/absence"
	"tributary/sources/dubbo/mapping"
	"tributary/sources/dubbo/provider"
	"tributary/sources/dubbo/registry"
)

// state is what is known of a registry. It does no I/O and has no clock. The mu of run guards it.
type state struct {
	mapper *mapping.Mapper
	place  string

	interfaces   map[string]*iface
	applications map[string]*application
	listed       [2]listing                        // of interfaces and of applications
	records      map[string]map[provider.ID]record // by interface and service
	names        map[provider.ID]mapping.Name
	served       map[string]map[*instance]bool // by interface
	dirty        map[string]bool               // interfaces to publish
	restored     map[string]bool               // interfaces that an earlier run published, and that this one has not
	suspicion    absence.Suspicion
	consuming    *consuming
	released     bool // what stayed only because nothing was known of some instance may go
}

// The indexes of state.listed.
const (
	ofInterfaces = iota
	ofApplications
)

// listing is whether the names of something were read.
type listing struct {
	read    bool
	trouble error // with the last read
}

// iface is what is known of the providers of an interface that register as such.
type iface struct {
	settled   bool // its providers were read, or cannot be
	read      bool
	there     bool // it has a place for providers
	removed   bool // it had one
	ruled     bool // its rules were read, or cannot be
	called    bool // its consumers were read, or cannot be
	trouble   error
	providers []provider.Provider
	told      []provider.Configurator // the rules that are listed
	rules     []absence.Known[provider.Configurator]
	held      int // rules that are not listed and stay for now
	warnings  []string
}

// settle decides what rules count. One that is not listed after the registry was away is in doubt as providers are: without it they would have
// another weight, or take calls that they must not.
func (i *iface) settle(s absence.Suspicion, at time.Time) {
	i.rules, i.held = absence.Settle(i.rules, i.told, provider.Configurator.Compare, func(k absence.Known[provider.Configurator]) bool {
		return s.Covers(k.Since, at)
	}, at)
}

// application is what is known of one.
type application struct {
	settled   bool
	trouble   error
	instances map[string]*instance
}

// instance is one of an application.
type instance struct {
	id string
	provider.Instance

	settled   bool
	dubbo     bool // and not some other framework's
	problem   string
	needs     *resolution // nil if nothing is to be found out
	providers []provider.Provider
}

func newState(m *mapping.Mapper, place string) *state {
	return &state{
		mapper: m, place: place, interfaces: map[string]*iface{}, applications: map[string]*application{},
		records: map[string]map[provider.ID]record{}, names: map[provider.ID]mapping.Name{}, served: map[string]map[*instance]bool{},
		dirty: map[string]bool{}, restored: map[string]bool{}, consuming: newConsuming(),
	}
}

// restore remembers what an earlier run published of an interface.
func (s *state) restore(name string, all []mapping.Restored) {
	s.restored[name] = true
	by := map[provider.ID][]mapping.Restored{}
	for _, one := range all {
		id := s.mapper.ServiceOf(one.ID)
		by[id] = append(by[id], one)
	}
	s.records[name] = map[provider.ID]record{}
	for id, ones := range by {
		s.records[name][id] = restored(ones)
	}
}

// takeProviders notes the providers of an interface. One that cannot be read is left out, with a warning.
func (s *state) takeProviders(name string, all []registry.Registered) {
	i := s.interfaces[name]
	if i == nil {
		return
	}
	i.settled, i.read, i.there, i.removed, i.trouble = true, true, true, false, nil
	i.providers, i.warnings = nil, nil
	for _, one := range all {
		var p provider.Provider
		ok, err := false, one.Err
		if err == nil {
			p, ok, err = one.Provider()
		}
		if err != nil {
			i.warnings = append(i.warnings, s.place+name+": "+err.Error())
			continue
		}
		if p.Interface != name && ok {
			// What is registered under a name that is not its own would be published by two groups.
			i.warnings = append(i.warnings, fmt.Sprintf("%s%s: provider %s:%d is of %s", s.place, name, p.Host, p.Port, provider.Shorten(p.Interface)))
			continue
		}
		if ok {
			i.providers = append(i.providers, p)
		}
	}
	s.dirty[name] = true
}

// removed notes that an interface has no place for providers.
func (s *state) removed(name string) {
	i := s.interfaces[name]
	if i == nil {
		return
	}
	i.settled, i.read, i.removed, i.trouble = true, true, i.removed || i.there, nil
	i.there = false
	i.providers, i.warnings = nil, nil
	s.dirty[name] = true
}

func (s *state) takeRules(name string, all []registry.Registered) {
	i := s.interfaces[name]
	if i == nil {
		return
	}
	i.ruled = true
	i.told = nil
	for _, one := range all {
		if rule, ok := one.Configurator(); one.Err == nil && ok {
			i.told = append(i.told, rule)
		}
	}
	slices.SortFunc(i.told, provider.Configurator.Compare)
	i.told = slices.CompactFunc(i.told, func(a, b provider.Configurator) bool { return a.Compare(b) == 0 })
	s.dirty[name] = true
}

// takeInterfaces notes the names of all interfaces.
func (s *state) takeInterfaces(names []string) {
	s.listed[ofInterfaces] = listing{read: true}
	there := make(map[string]bool, len(names))
	for _, name := range names {
		there[name] = true
		if s.interfaces[name] == nil {
			s.interfaces[name] = &iface{}
		}
	}
	for name, i := range s.interfaces {
		if !there[name] && !i.removed {
			i.settled, i.read, i.ruled, i.called, i.removed, i.there, i.trouble = true, true, true, true, true, false, nil
			i.providers, i.told, i.warnings = nil, nil, nil
			s.takeConsumers(name, nil)
			s.dirty[name] = true
		}
	}
}

// takeApplications notes the names of all applications, and returns the resolutions that nobody needs any more.
func (s *state) takeApplications(names []string) {
	s.listed[ofApplications] = listing{read: true}
	there := make(map[string]bool, len(names))
	for _, name := range names {
		there[name] = true
		if s.applications[name] == nil {
			s.applications[name] = &application{instances: map[string]*instance{}}
		}
	}
	for name, a := range s.applications {
		if !there[name] {
			for _, i := range a.instances {
				s.drop(i)
			}
			delete(s.applications, name)
		}
	}
}

func (s *state) takeInstances(name string, ids []string) {
	a := s.applications[name]
	if a == nil {
		return
	}
	a.settled, a.trouble = true, nil
	there := make(map[string]bool, len(ids))
	for _, id := range ids {
		there[id] = true
		if a.instances[id] == nil {
			a.instances[id] = &instance{id: id}
		}
	}
	for id, i := range a.instances {
		if !there[id] {
			s.drop(i)
			delete(a.instances, id)
		}
	}
}

// drop forgets what an instance serves, and what it needs.
func (s *state) drop(i *instance) {
	s.released = s.released || i.needs != nil && i.needs.metadata == nil
	s.serve(i, nil)
	s.release(i)
}

// serve notes what an instance serves.
func (s *state) serve(i *instance, all []provider.Provider) {
	for _, p := range i.providers {
		s.dirty[p.Interface] = true
		delete(s.served[p.Interface], i)
		if len(s.served[p.Interface]) == 0 {
			delete(s.served, p.Interface)
		}
	}
	i.providers = all
	for _, p := range all {
		s.dirty[p.Interface] = true
		if s.served[p.Interface] == nil {
			s.served[p.Interface] = map[*instance]bool{}
		}
		s.served[p.Interface][i] = true
	}
}

// providersOf returns the providers of an interface, of both levels: each once, as the rules make it.
func (s *state) providersOf(name string) []provider.Provider {
	var levels [][]provider.Provider
	var rules []provider.Configurator
	if i := s.interfaces[name]; i != nil {
		levels = append(levels, i.providers)
		for _, r := range i.rules {
			rules = append(rules, r.Of)
		}
	}
	// Instances come in no order, and which of two that are equally old counts must not depend on that.
	for _, i := range slices.SortedFunc(maps.Keys(s.served[name]), func(a, b *instance) int {
		return cmp.Or(cmp.Compare(a.Application, b.Application), cmp.Compare(a.id, b.id))
	}) {
		levels = append(levels, slices.DeleteFunc(slices.Clone(i.providers), func(p provider.Provider) bool { return p.Interface != name }))
	}
	return provider.Configure(provider.Merge(levels...), rules)
}

// certain reports whether enough is known of an interface to publish it. What an earlier run published may have been read from something
// that cannot be read now.
func (s *state) certain(name string) bool {
	i := s.interfaces[name]
	return i == nil || i.read
}

// believe decides what counts of an interface. unknown is what s.unknown says.
func (s *state) believe(name string, at time.Time, unknown map[whose]bool, keep func(removed bool) time.Duration) (warnings []string) {
	type listed struct {
		endpoints []mapping.Endpoint
		off       []mapping.Endpoint // by those who run them: they are listed, and take no calls
		protocols []string
	}
	i := s.interfaces[name]
	if i != nil {
		i.settle(s.suspicion, at)
	}
	now := map[provider.ID]*listed{}
	for _, p := range s.providersOf(name) {
		id := s.mapper.ServiceOf(p.ID)
		l := now[id]
		if l == nil {
			l = &listed{}
			now[id] = l
		}
		l.protocols = append(l.protocols, p.Protocol)
		e, ok, problem := s.mapper.Endpoint(p)
		if problem != "" {
			warnings = append(warnings, s.place+name+": "+problem)
		}
		switch {
		case ok:
			l.endpoints = append(l.endpoints, e)
		case problem == "":
			l.off = append(l.off, e)
		}
	}
	if i != nil {
		warnings = append(warnings, i.warnings...)
	}
	stays := func(k known, off []mapping.Endpoint) bool {
		if slices.ContainsFunc(off, func(e mapping.Endpoint) bool { return e.Compare(k.Of) == 0 }) {
			return false
		}
		return s.suspicion.Covers(k.Since, at) || unknown[whose{k.Of.Labels["application"], k.Of.Address}]
	}
	before, after := s.records[name], map[provider.ID]record{}
	for id := range before {
		if now[id] == nil {
			now[id] = &listed{}
		}
	}
	for id, l := range now {
		slices.SortStableFunc(l.endpoints, mapping.Endpoint.Compare)
		l.endpoints = slices.CompactFunc(l.endpoints, func(a, b mapping.Endpoint) bool { return a.Compare(b) == 0 })
		r := believe(before[id], l.endpoints, l.protocols, func(k known) bool { return stays(k, l.off) }, at, keep(i != nil && i.removed && len(s.served[name]) == 0))
		if len(r.empty) > 0 {
			after[id] = r
		}
	}
	s.records[name] = after
	if len(after) == 0 {
		delete(s.records, name)
	}
	return warnings
}

// reconsider has looked at anew what is not listed and stays.
func (s *state) reconsider() {
	for name, i := range s.interfaces {
		if i.held > 0 {
			s.dirty[name] = true
		}
	}
	for name, services := range s.records {
		for _, r := range services {
			if r.held > 0 {
				s.dirty[name] = true
			}
		}
	}
}

// whose says to whom an endpoint belongs.
type whose struct{ application, address string }

// unknown returns the instances of which is not known what they serve. What they were known to serve stays.
func (s *state) unknown() map[whose]bool {
	all := map[whose]bool{}
	for name, a := range s.applications {
		for _, i := range a.instances {
			if i.dubbo && i.needs != nil && i.needs.metadata == nil {
				all[whose{name, i.Host}] = true
			}
		}
	}
	return all
}

// rename gives all services their names, and has those published again of which it is another one.
func (s *state) rename() {
	var ids []provider.ID
	owner := map[provider.ID]string{}
	for name, services := range s.records {
		for id := range services {
			ids = append(ids, id)
			owner[id] = name
		}
	}
	if len(ids) == len(s.names) && !slices.ContainsFunc(ids, func(id provider.ID) bool { _, there := s.names[id]; return !there }) {
		return
	}
	names := s.mapper.Names(ids)
	for id, n := range names {
		if before, there := s.names[id]; there && before != n {
			s.dirty[owner[id]] = true
		}
	}
	s.names = names
}

// services returns what there is to publish of an interface.
func (s *state) services(name string) []mapping.Service {
	var all []mapping.Service
	for _, id := range slices.SortedFunc(maps.Keys(s.records[name]), provider.ID.Compare) {
		all = append(all, s.records[name][id].service(mapping.Service{ID: id, Name: s.names[id], Place: s.place + name}))
	}
	return all
}

// content is what there is to publish of an interface.
func (s *state) content(name string, warnings []string) sources.Content {
	c := sources.Content{Group: name, Warnings: warnings}
	for _, service := range s.services(name) {
		rs, warned, err := s.mapper.Entries(service)
		if err == nil {
			var rule *resource.Resource
			if rule, err = s.mapper.Rule(service); rule != nil {
				rs = append(rs, rule)
			}
		}
		if err != nil {
			c.Rejects = append(c.Rejects, sources.Reject{Origin: resource.Origin{Place: strings.ToValidUTF8(service.Place, "?")}, Err: err})
		}
		c.Resources = append(c.Resources, rs...)
		c.Warnings = append(c.Warnings, warned...)
	}
	slices.Sort(c.Warnings)
	c.Warnings = slices.Compact(c.Warnings)
	return c
}

// settled reports whether all that the registry had at the start was read, or cannot be. One that cannot be read does not hold up the
// others; if it is all of them, we may not read the registry. consumers says whether these are wanted.
func (s *state) settled(consumers bool) bool {
	for _, l := range s.listed {
		if !l.read {
			return false
		}
	}
	for _, i := range s.interfaces {
		if !i.settled || !i.ruled || consumers && !i.called {
			return false
		}
	}
	for _, a := range s.applications {
		if !a.settled {
			return false
		}
		for _, i := range a.instances {
			if !i.settled {
				return false
			}
		}
	}
	return true
}

// undecided reports whether it was not yet tried to find out what some instance serves.
func (s *state) undecided() bool {
	for _, a := range s.applications {
		for _, i := range a.instances {
			if i.needs != nil && !i.needs.tried {
				return true
			}
		}
	}
	return false
}
