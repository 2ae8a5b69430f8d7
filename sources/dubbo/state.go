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

// state is the content of a registry, part by part: offers.go merges the parts of an interface. It does no I/O and
// has no clock. The mu of run guards it.
type state struct {
	*core.Machine[mapping.ID]

	settings Settings
	mapper   *mapping.Mapper
	place    string

	lists            [2]nameList // of interfaces and of applications
	interfaces       map[string]*interfaceState
	applications     map[string]*application
	lookups          map[revision]*lookup
	serviceCount     int // services of all instances
	maxServices      int
	otherServices    int // services of other frameworks, see registry.Listener
	changed          map[string]bool
	unread           map[scope]core.State // at the last publication
	callAddresses    map[scope]bool       // see addresses; nil after a change
	suspicion        core.Suspicion
	sidecars         *core.Machine[mapping.ID]
	consumersChanged bool
}

// The indexes of state.lists.
const (
	interfaceNames = iota
	applicationNames
)

// nameList is the list of the names at one level of registration.
type nameList struct {
	readResult

	level   provider.Levels
	ignored bool // the settings leave out this level
	skipped int  // listed names that the settings leave out
}

// readResult is the outcome of the reads of one part of the registry. After a failed read the earlier content stays.
type readResult struct {
	succeeded  bool // at some time
	incomplete bool // the content may lack items
	failure    error
}

// take stores the error of a read, and reports whether the read brought content.
func (r *readResult) take(err error) (content bool) {
	var incomplete *registry.Incomplete
	if err != nil && !errors.As(err, &incomplete) {
		r.failure = err
		return false
	}
	*r = readResult{succeeded: true, incomplete: incomplete != nil, failure: incomplete.Unwrap()}
	return true
}

// settled reports whether a first read succeeded or failed.
func (r readResult) settled() bool { return r.succeeded || r.failure != nil }

// unreadable reports whether the registry may have more than the content.
func (r readResult) unreadable() bool { return !r.succeeded || r.incomplete }

// interfaceState has the registrations of an interface at both levels.
type interfaceState struct {
	name         string
	parts        map[registry.Part]*part
	instances    map[*instance]bool // of applications, that serve the interface
	hadProviders bool               // it had a place for providers at some time
	rules        []core.Known[provider.Configurator]
	heldRules    int // rules that the registry no longer lists
}

// part has the registrations of a part of an interface.
type part struct {
	readResult

	absent    bool // there is no such place
	providers []provider.Provider
	addresses []scope // of providers
	rules     []provider.Configurator
	consumers []provider.Consumer
	invalid   []sources.LeftOut // providers that cannot be parsed
	failing   []sources.LeftOut // providers that count as unlisted
}

// partsOf returns the parts of one category. Their order is stable.
func (i *interfaceState) partsOf(category registry.Category) (parts []*part) {
	for _, key := range slices.SortedFunc(maps.Keys(i.parts), func(a, b registry.Part) int {
		return cmp.Compare(a.Node, b.Node)
	}) {
		if key.Category == category {
			parts = append(parts, i.parts[key])
		}
	}
	return parts
}

// settled reports whether the first reads of providers and rules are over.
func (i *interfaceState) settled() bool {
	for key, part := range i.parts {
		if key.Category != registry.Consumers && !part.settled() {
			return false
		}
	}
	return true
}

// removed reports whether the interface lost its places for providers, and no instance serves it.
func (i *interfaceState) removed() bool {
	return i.hadProviders && len(i.instances) == 0 &&
		!slices.ContainsFunc(i.partsOf(registry.Providers), func(p *part) bool { return !p.absent })
}

// unreadable reports whether the registry may have more registrations of a category than the content.
func (i *interfaceState) unreadable(category registry.Category) bool {
	return slices.ContainsFunc(i.partsOf(category), func(p *part) bool { return p.unreadable() })
}

// application has the instances of an application.
type application struct {
	readResult

	instances map[string]*instance
}

// instance is an instance of an application.
type instance struct {
	id, application string
	provider.Instance

	settled   bool // the first read is over
	succeeded bool // a read succeeded at some time
	dubbo     bool // other frameworks register at the same place
	problem   string
	lookup    *lookup // nil if the instance needs no metadata
	providers []provider.Provider
	rejected  []error // services in its metadata that cannot be called
}

func newState(mapper *mapping.Mapper, place string, settings Settings) *state {
	s := &state{
		settings: settings, mapper: mapper, place: place, maxServices: maxServices,
		interfaces: map[string]*interfaceState{}, applications: map[string]*application{},
		lookups: map[revision]*lookup{}, changed: map[string]bool{},
		lists: [...]nameList{
			interfaceNames:   {level: provider.OfInterfaces, ignored: settings.RegisterMode == modeInstance},
			applicationNames: {level: provider.OfApplications, ignored: settings.RegisterMode == modeInterface},
		},
		sidecars: newSidecars(mapper, settings), consumersChanged: true,
	}
	s.Machine = core.NewMachine(mapper, func(id mapping.ID) time.Duration {
		if iface := s.interfaces[id.Group()]; iface != nil && iface.removed() {
			return settings.Grace
		}
		return settings.KeepEmpty
	}, func(id mapping.ID, missing core.Known[core.Endpoint]) time.Time {
		return s.holdUntil(s.unlistedState(id.Group(), missing.Value), missing.Since, missing.Missing)
	})
	s.Follow(func(mapping.ID, []core.Known[core.Endpoint], []core.Known[core.Endpoint]) { s.callAddresses = nil })
	return s
}

// restore takes back an interface that an earlier run published, if the settings still select it.
func (s *state) restore(name string, published []*resource.Resource) {
	s.changed[name] = true
	s.Restore(name, published, func(core.Service[mapping.ID]) bool { return s.settings.serves(name) })
}

// entry returns the state of an interface, which it adds if it is new.
func (s *state) entry(name string) *interfaceState {
	if s.interfaces[name] == nil {
		s.interfaces[name] = &interfaceState{
			name: name, parts: map[registry.Part]*part{}, instances: map[*instance]bool{},
		}
	}
	return s.interfaces[name]
}

// markChanged notes that the content of a part changed.
func (s *state) markChanged(key registry.Part) {
	if key.Category == registry.Consumers {
		s.consumersChanged = true
		return
	}
	s.changed[key.Interface], s.callAddresses = true, nil
}

// takeParts stores the list of the parts of interfaces.
func (s *state) takeParts(parts []registry.Part, err error) {
	list := &s.lists[interfaceNames]
	if list.ignored || !list.take(err) {
		return
	}
	skipped, listed := map[string]bool{}, map[registry.Part]bool{}
	for _, key := range parts {
		if !s.settings.serves(key.Interface) {
			skipped[key.Interface] = true
			continue
		}
		listed[key] = true
		if iface := s.entry(key.Interface); iface.parts[key] == nil {
			iface.parts[key] = &part{}
		}
	}
	list.skipped = len(skipped)
	for _, iface := range s.interfaces {
		for key := range iface.parts {
			if !listed[key] {
				delete(iface.parts, key)
				s.markChanged(key)
			}
		}
	}
}

// take stores the registrations of a part.
func (s *state) take(key registry.Part, registrations []registry.Registration, err error) {
	iface := s.interfaces[key.Interface]
	if iface == nil || iface.parts[key] == nil {
		return
	}
	s.markChanged(key)
	absent := errors.Is(err, registry.ErrAbsent)
	if absent {
		registrations, err = nil, nil
	}
	content := iface.parts[key]
	if !content.take(err) {
		return
	}
	*content = part{readResult: content.readResult, absent: absent}
	iface.hadProviders = iface.hadProviders || key.Category == registry.Providers && !absent
	for _, registration := range registrations {
		usable := registration.Err == nil && registration.Failing == ""
		switch key.Category {
		case registry.Providers:
			content.addProvider(key.Interface, registration)
		case registry.Configurators:
			if rule, ok := registration.Configurator(); ok && usable {
				content.rules = append(content.rules, rule)
			}
		case registry.Consumers:
			consumer, ok := registration.Consumer()
			if ok && usable && consumer.Interface == key.Interface {
				content.consumers = append(content.consumers, consumer)
			}
		}
	}
}

// addProvider adds a provider to a part of an interface, or the reason to leave it out.
func (p *part) addProvider(name string, registration registry.Registration) {
	listed, ok, err := provider.Provider{}, false, registration.Err
	if err == nil {
		listed, ok, err = registration.Provider()
	}
	if ok && err == nil && listed.Interface != name { // two groups would publish it
		err = fmt.Errorf("provider %s:%d is of %s", listed.Host, listed.Port, provider.Shorten(listed.Interface))
	}
	switch {
	case err != nil && registration.Failing != "":
		reason := registration.Failing + "; " + err.Error()
		p.failing = append(p.failing, sources.LeftOut{What: "a provider", Of: name, Why: reason})
	case err != nil:
		p.invalid = append(p.invalid, sources.LeftOut{What: "a provider", Of: name, Why: err.Error()})
	case ok && registration.Failing != "":
		p.failing = append(p.failing, leftOut(listed, registration.Failing))
	case ok:
		listed.Levels, listed.Unverified = provider.OfInterfaces, registration.Unverified
		p.providers = append(p.providers, listed)
		p.addresses = append(p.addresses, instanceScope(listed.Application, listed.Host, listed.Port))
	}
}

// takeApplications stores the list of applications.
func (s *state) takeApplications(names []string, err error) {
	list := &s.lists[applicationNames]
	if list.ignored || !list.take(err) {
		return
	}
	selected := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !s.settings.reads(name) })
	list.skipped = len(names) - len(selected)
	core.Sync(s.applications, selected, func(string) *application {
		return &application{instances: map[string]*instance{}}
	}, func(removed *application) {
		for _, instance := range removed.instances {
			s.drop(instance)
		}
	})
}

// takeInstances stores the list of the instances of an application.
func (s *state) takeInstances(name string, ids []string, err error) {
	if listed := s.applications[name]; listed != nil && listed.take(err) {
		create := func(id string) *instance { return &instance{id: id, application: name} }
		core.Sync(listed.instances, ids, create, s.drop)
	}
}

// drop forgets the services of an instance, and its lookup.
func (s *state) drop(i *instance) {
	s.serve(i, nil)
	s.release(i)
}

// maxServices bounds the services of all instances: thousands of instances can name thousands of services in a few
// bytes each.
const maxServices = 1_000_000

// serve stores the services of an instance that the settings select. Over the limit its earlier services stay.
func (s *state) serve(i *instance, services []provider.Provider) {
	services = slices.DeleteFunc(slices.Clone(services), func(p provider.Provider) bool {
		return !s.settings.serves(p.Interface)
	})
	growth := len(services) - len(i.providers)
	if growth > 0 && s.serviceCount+growth > s.maxServices {
		i.problem = fmt.Sprintf("its %d services are over the limit of %d services of all instances",
			len(services), s.maxServices)
		return
	}
	s.serviceCount += growth
	for _, service := range i.providers {
		delete(s.entry(service.Interface).instances, i)
		s.changed[service.Interface] = true
	}
	for n := range services {
		services[n].Levels = provider.OfApplications
		s.entry(services[n].Interface).instances[i] = true
		s.changed[services[n].Interface] = true
	}
	i.providers = services
}
