package dubbo

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/dubbo/mapping"
	"tributary/sources/dubbo/provider"
	"tributary/sources/dubbo/registry"
	core "tributary/sources/registry"
)

// state is the known state of a registry. It does no I/O and has no clock. The mu of run guards it.
//
// It stores each part of the registry by itself; offers.go derives the offers of an interface from all parts.
type state struct {
	*core.Machine[mapping.ID]
	mapper  *mapping.Mapper
	place   string
	selects func(iface string) bool // whether an interface is served at all
	reads   func(application string) bool

	interfaces     map[string]*iface
	applications   map[string]*application
	listed         [len(levels)]reading          // of interfaces and of applications
	unwanted       [len(levels)]bool             // levels that the settings leave out
	knownAddresses addressCounts                 // of all that interfaces have, and of all that is believed
	served         map[string]map[*instance]bool // by interface
	provided       int                           // services of all instances
	maxProvided    int
	dirty          map[string]bool  // interfaces to publish
	restored       map[string]bool  // interfaces that only an earlier run published; true if what it published cannot be read
	unread         unread           // at the last publication
	skipped        [len(levels)]int // names that are listed and left out, as the settings say
	others         int              // services that are not Dubbo's, see registry.Listener
	suspicion      core.Suspicion
	consuming      *consuming
}

// The indexes of state.listed and of levels.
const (
	interfaceNames = iota
	applicationNames
)

// reading tells what is known of a part of the registry.
type reading struct {
	read    bool  // at some time
	more    bool  // there may be more, which cannot be read
	trouble error // of the last read; the content stays
}

// take notes a read, and reports whether it brought content.
func (r *reading) take(err error) (content bool) {
	var incomplete *registry.Incomplete
	if err != nil && !errors.As(err, &incomplete) {
		r.trouble = err
		return false
	}
	*r = reading{read: true, more: incomplete != nil, trouble: incomplete.Unwrap()}
	return true
}

// settled reports whether it was read or cannot be.
func (r reading) settled() bool { return r.read || r.trouble != nil }

// unreadable reports whether it was never read, or only in part.
func (r reading) unreadable() bool { return !r.read || r.more }

// levels are the registration levels of the two lists.
var levels = [...]provider.Levels{interfaceNames: provider.OfInterfaces, applicationNames: provider.OfApplications}

// iface is an interface at its own level, while it has parts or kept rules or services.
type iface struct {
	parts map[registry.Part]*part
	had   bool // a place for providers, at some time
	rules []core.Known[provider.Configurator]
	held  int // unlisted rules that stay for now
}

// part has the registrations of a part of an interface.
type part struct {
	reading

	absent    bool // there is no such place
	providers []provider.Provider
	rules     []provider.Configurator
	consumers []provider.Consumer
	warnings  []string
	failing   []sources.LeftOut // providers that count as unlisted
}

// of returns the parts of one category, in order.
func (i *iface) of(c registry.Category) (all []*part) {
	for _, key := range slices.SortedFunc(maps.Keys(i.parts), func(a, b registry.Part) int { return cmp.Compare(a.Node, b.Node) }) {
		if key.Category == c {
			all = append(all, i.parts[key])
		}
	}
	return all
}

// removed reports whether an interface had a place for providers, and has none.
func (i *iface) removed() bool {
	return i.had && !slices.ContainsFunc(i.of(registry.Providers), func(p *part) bool { return !p.absent })
}

// unreadable reports whether some part of a category was never read, or only in part.
func (i *iface) unreadable(c registry.Category) bool {
	return slices.ContainsFunc(i.of(c), func(p *part) bool { return p.unreadable() })
}

// application is an application and its instances.
type application struct {
	reading

	instances map[string]*instance
}

// list returns the instances of an application, in no order.
func (a *application) list() []*instance { return slices.Collect(maps.Values(a.instances)) }

// instance is one of an application.
type instance struct {
	id, application string
	provider.Instance

	reported  bool // it was read, or cannot be
	read      bool // it was read at some time
	dubbo     bool // it is Dubbo's, not some other framework's
	problem   string
	lookup    *lookup // nil if nothing is to be found out
	providers []provider.Provider
}

func newState(m *mapping.Mapper, place string, settings Settings) *state {
	s := &state{
		mapper: m, place: place, selects: settings.serves, maxProvided: maxProvided, interfaces: map[string]*iface{},
		applications: map[string]*application{}, knownAddresses: addressCounts{}, served: map[string]map[*instance]bool{},
		dirty: map[string]bool{}, restored: map[string]bool{},
		consuming: &consuming{known: map[string][]core.Known[string]{}, published: map[string]bool{}},
		unwanted:  [...]bool{interfaceNames: settings.RegisterMode == modeInstance, applicationNames: settings.RegisterMode == modeInterface},
		reads:     settings.reads,
	}
	s.Machine = core.NewMachine(m, func(id mapping.ID) time.Duration {
		if s.removed(id.Service.Interface) {
			return settings.Grace
		}
		return settings.KeepEmpty
	}, func(id mapping.ID, k core.Known[core.Endpoint]) time.Time {
		return s.keepUntil(s.unread.stateOf(id.Service, k.Value), k.Since, k.Missing)
	})
	s.Follow(func(_ mapping.ID, before, after []core.Known[core.Endpoint]) {
		s.knownAddresses.remove(addressesOf(before))
		s.knownAddresses.add(addressesOf(after))
	})
	return s
}

// restore takes back what an earlier run published of an interface, if the settings still select it.
func (s *state) restore(name string, published []*resource.Resource) {
	if s.restored[name] = false; !s.selects(name) {
		s.Take(name, core.Offers[mapping.ID]{})
		return
	}
	s.restored[name] = len(s.mapper.Restore(published)) == 0
	s.Restore(name, published, func(core.Service[mapping.ID]) bool { return true })
}

// takeParts stores which parts interfaces have.
func (s *state) takeParts(all []registry.Part, err error) {
	if s.unwanted[interfaceNames] || !s.listed[interfaceNames].take(err) {
		return
	}
	left := map[string]bool{}
	there := make(map[registry.Part]bool, len(all))
	for _, key := range all {
		if !s.selects(key.Interface) {
			left[key.Interface] = true
			continue
		}
		there[key] = true
		i := s.interfaces[key.Interface]
		if i == nil {
			i = &iface{parts: map[registry.Part]*part{}}
			s.interfaces[key.Interface] = i
		}
		if i.parts[key] == nil {
			i.parts[key] = &part{}
		}
	}
	s.skipped[interfaceNames] = len(left)
	for name, i := range s.interfaces {
		for key := range i.parts {
			if !there[key] {
				s.knownAddresses.remove(i.parts[key].addresses())
				delete(i.parts, key)
				s.dirty[name] = true
				s.consuming.dirty = s.consuming.dirty || key.Category == registry.Consumers
			}
		}
	}
}

// take stores the registrations of a part. One that cannot be read is left out, with a warning.
func (s *state) take(key registry.Part, all []registry.Registration, err error) {
	i := s.interfaces[key.Interface]
	if i == nil || i.parts[key] == nil {
		return
	}
	p := i.parts[key]
	if key.Category == registry.Consumers {
		s.consuming.dirty = true // it has groups of its own
	} else {
		s.dirty[key.Interface] = true
	}
	absent := errors.Is(err, registry.ErrAbsent)
	if absent {
		err = nil
	}
	if !p.take(err) {
		return
	}
	s.knownAddresses.remove(p.addresses())
	if *p = (part{reading: p.reading, absent: absent}); absent {
		return
	}
	switch key.Category {
	case registry.Providers:
		i.had = true
		p.takeProviders(key.Interface, s.place, all)
		s.knownAddresses.add(p.addresses())
	case registry.Configurators:
		for _, one := range all {
			if rule, ok := one.Configurator(); one.Err == nil && one.Failing == "" && ok {
				p.rules = append(p.rules, rule)
			}
		}
	case registry.Consumers:
		for _, one := range all {
			if consumer, ok := one.Consumer(); one.Err == nil && one.Failing == "" && ok && consumer.Interface == key.Interface {
				p.consumers = append(p.consumers, consumer)
			}
		}
	}
}

func (p *part) takeProviders(name, place string, all []registry.Registration) {
	for _, one := range all {
		var of provider.Provider
		ok, err := false, one.Err
		if err == nil {
			of, ok, err = one.Provider()
		}
		if ok && err == nil && of.Interface != name {
			// Two groups would publish a provider that is registered under another interface's name.
			err = fmt.Errorf("provider %s:%d is of %s", of.Host, of.Port, provider.Shorten(of.Interface))
		}
		switch {
		case one.Failing != "" && err != nil:
			p.failing = append(p.failing, sources.LeftOut{What: "a provider", Of: name, Why: one.Failing + "; " + err.Error()})
		case one.Failing != "" && ok:
			p.failing = append(p.failing, leftOut(of, one.Failing))
		case one.Failing != "":
		case err != nil:
			p.warnings = append(p.warnings, place+name+": "+err.Error())
		case ok:
			of.Levels, of.Unverified = provider.OfInterfaces, one.Unverified
			p.providers = append(p.providers, of)
		}
	}
}

// takeApplications stores the names of all applications.
func (s *state) takeApplications(names []string, err error) {
	if s.unwanted[applicationNames] || !s.listed[applicationNames].take(err) {
		return
	}
	wanted := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !s.reads(name) })
	s.skipped[applicationNames] = len(names) - len(wanted)
	core.Sync(s.applications, wanted, func(string) *application {
		return &application{instances: map[string]*instance{}}
	}, func(a *application) {
		for _, i := range a.instances {
			s.drop(i)
		}
	})
}

// takeInstances stores the ids of all instances of an application.
func (s *state) takeInstances(name string, ids []string, err error) {
	if a := s.applications[name]; a != nil && a.take(err) {
		core.Sync(a.instances, ids, func(id string) *instance { return &instance{id: id, application: name} }, s.drop)
	}
}

// drop forgets the services of an instance, and its lookup.
func (s *state) drop(i *instance) {
	s.serve(i, nil)
	s.release(i)
}

// maxProvided bounds the services of all instances together: with a few bytes, thousands of instances have thousands of services each.
const maxProvided = 1_000_000

// serve stores the services of an instance, of the selected interfaces. If these exceed the limit, its earlier services stay.
func (s *state) serve(i *instance, all []provider.Provider) {
	all = slices.DeleteFunc(slices.Clone(all), func(p provider.Provider) bool { return !s.selects(p.Interface) })
	provided := s.provided - len(i.providers) + len(all)
	if provided > s.maxProvided && len(all) > len(i.providers) {
		i.problem = problemOf(i) + fmt.Sprintf("its %d services are over the limit of %d services of all instances", len(all), s.maxProvided)
		return
	}
	s.provided = provided
	for n := range all {
		all[n].Levels = provider.OfApplications
	}
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

// settled reports whether everything that the registry had at the start was read or cannot be. If nothing can be read, see run.refused.
func (s *state) settled() bool {
	for n, l := range s.listed {
		if !l.settled() && !s.unwanted[n] {
			return false
		}
	}
	for _, i := range s.interfaces {
		for _, p := range i.parts {
			if !p.settled() {
				return false
			}
		}
	}
	for _, a := range s.applications {
		if !a.settled() {
			return false
		}
		for _, i := range a.instances {
			if !i.reported {
				return false
			}
		}
	}
	return true
}

// partial reports whether a list of names may be incomplete.
func (s *state) partial() bool {
	return slices.ContainsFunc(s.listed[:], func(l reading) bool { return l.more })
}

// undecided reports whether the lookup of some instance was not tried yet.
func (s *state) undecided() bool {
	for _, a := range s.applications {
		for _, i := range a.instances {
			if i.lookup != nil && !i.lookup.tried {
				return true
			}
		}
	}
	return false
}
