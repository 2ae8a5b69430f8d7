package dubbo

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"tributary/resource"
	"tributary/sources/dubbo/backend"
	"tributary/sources/dubbo/mapping"
	"tributary/sources/dubbo/provider"
	"tributary/sources/presence"
	"tributary/sources/registry"
)

type (
	machine   = registry.Machine[mapping.ID]
	service   = registry.Service[mapping.ID]
	knownRule = presence.Item[provider.Configurator]
)

// state is the content of a registry, part by part: offers.go merges the parts of an interface. It does no I/O and
// has no clock. The mu of run guards it.
type state struct {
	*Source
	*machine

	lists            [2]nameList // of interfaces and of applications
	interfaces       map[string]*interfaceState
	applications     map[string]*application
	lookups          map[revision]*lookup
	serviceCount     int // services of all instances
	maxServices      int
	otherServices    int // services of other frameworks, see backend.Listener
	changed          map[string]bool
	unread           map[scope]presence.State // at the last publication
	callAddresses    map[scope]bool           // see addresses; nil after a change
	sidecars         *machine
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
	total   int  // of listed names, also those that the settings leave out
}

// readResult is the outcome of the reads of one part of the registry. After a failed read the earlier content stays.
type readResult struct {
	succeeded  bool // at some time
	incomplete bool // the content may lack items
	failure    error
}

// take stores the error of a read, and reports whether the read brought content.
func (r *readResult) take(err error) (content bool) {
	var incomplete *backend.Incomplete
	if err != nil && !errors.As(err, &incomplete) {
		r.failure = err
		return false
	}
	*r = readResult{succeeded: true, incomplete: incomplete != nil, failure: incomplete.Unwrap()}
	return true
}

// settled reports whether a first read succeeded or failed.
func (r readResult) settled() bool { return r.succeeded || r.failure != nil }

// failed reports whether each read failed.
func (r readResult) failed() bool { return !r.succeeded && r.failure != nil }

// unreadable reports whether the registry may have more than the content.
func (r readResult) unreadable() bool { return !r.succeeded || r.incomplete }

// interfaceState has the registrations of an interface at both levels.
type interfaceState struct {
	parts     map[backend.Part]*part
	instances map[*instance]bool // of applications, that serve the interface
	listed    bool               // the registry listed a part at some time
	rules     []knownRule
	heldRules int       // rules that the registry no longer lists
	rulesDue  time.Time // when the first of their holds ends; zero without one
}

// part has the registrations of a part of an interface.
type part struct {
	readResult

	absent        bool // the registry has no place for it
	registrations []backend.Registration
	addresses     []scope // of providers
}

// partsOf returns the parts of one category. Their order is stable.
func (i *interfaceState) partsOf(category backend.Category) (parts []*part) {
	for _, partKey := range slices.SortedFunc(maps.Keys(i.parts), func(a, b backend.Part) int {
		return cmp.Compare(a.Node, b.Node)
	}) {
		if partKey.Category == category {
			parts = append(parts, i.parts[partKey])
		}
	}
	return parts
}

// settled reports whether the first reads of providers and rules are over.
func (i *interfaceState) settled() bool {
	for partKey, part := range i.parts {
		if partKey.Category != backend.Consumers && !part.settled() {
			return false
		}
	}
	return true
}

// removed reports whether the registry no longer has a place for providers of the interface, and no instance serves it.
func (i *interfaceState) removed() bool {
	present := slices.ContainsFunc(i.partsOf(backend.Providers), func(p *part) bool { return !p.absent })
	return i.listed && !present && len(i.instances) == 0
}

// unreadable reports whether the registry may have more registrations of a category than the content.
func (i *interfaceState) unreadable(category backend.Category) bool {
	return slices.ContainsFunc(i.partsOf(category), func(p *part) bool { return p.unreadable() })
}

// application has the instances of an application.
type application struct {
	readResult

	instances map[string]*instance
}

// instance is an instance of an application.
type instance struct {
	readResult
	provider.Instance // zero if it is unread, or of another framework

	id, application string
	lookup          *lookup                        // nil if the instance needs no metadata
	providers       map[string][]provider.Provider // by interface
	serviceCount    int
	rejected        []error // services in its metadata that cannot be called
}

// fail stores the reason why an instance, or its services, cannot be read.
func (i *instance) fail(err error) {
	i.failure = fmt.Errorf("instance %s of %s: %w", i.id, i.application, err)
}

func newState(source *Source) *state {
	registerMode := source.settings.RegisterMode
	state := &state{
		Source: source, maxServices: maxServices, interfaces: map[string]*interfaceState{},
		applications: map[string]*application{}, lookups: map[revision]*lookup{}, changed: map[string]bool{},
		lists: [...]nameList{
			interfaceNames:   {level: provider.OfInterfaces, ignored: registerMode == modeInstance},
			applicationNames: {level: provider.OfApplications, ignored: registerMode == modeInterface},
		},
		sidecars: newSidecars(source), consumersChanged: true,
	}
	state.machine = registry.NewMachine(source.mapper, func(serviceID mapping.ID) time.Duration {
		if state.entry(serviceID.Group()).removed() {
			return state.settings.Grace
		}
		return state.settings.KeepEmpty
	}, func(serviceID mapping.ID, unlisted registry.Known) time.Time {
		return state.holdUntil(state.unlistedState(serviceID.Group(), unlisted.Value), unlisted.FirstListed, unlisted.Missing)
	})
	return state
}

// restore takes back an interface that an earlier run published, if the settings still select it.
func (s *state) restore(interfaceName string, published []*resource.Resource) {
	s.changed[interfaceName], s.callAddresses = true, nil
	s.Restore(interfaceName, published, func(service) bool { return s.settings.serves(interfaceName) })
}

// entry returns the state of an interface, which it adds if it is new.
func (s *state) entry(interfaceName string) *interfaceState {
	if s.interfaces[interfaceName] == nil {
		s.interfaces[interfaceName] = &interfaceState{parts: map[backend.Part]*part{}, instances: map[*instance]bool{}}
	}
	return s.interfaces[interfaceName]
}

// markChanged notes that the content of a part changed.
func (s *state) markChanged(changed backend.Part) {
	s.changed[changed.Interface], s.consumersChanged, s.callAddresses = true, true, nil
}

// drop forgets the services of an instance, and its lookup.
func (s *state) drop(instance *instance) {
	s.serve(instance, nil)
	s.release(instance)
}

// maxServices bounds the services of all instances: thousands of instances can name thousands of services in a few
// bytes each.
const maxServices = 1_000_000

// serve stores the services of an instance that the settings select. Over the limit its earlier services stay.
func (s *state) serve(instance *instance, services []provider.Provider) {
	selected, count := map[string][]provider.Provider{}, 0
	for _, service := range services {
		if s.settings.serves(service.Interface) {
			service.Levels = provider.OfApplications
			selected[service.Interface] = append(selected[service.Interface], service)
			count++
		}
	}
	total := s.serviceCount - instance.serviceCount + count
	if total > max(s.maxServices, s.serviceCount) {
		instance.fail(fmt.Errorf("its %d services are over the limit of %d services of all instances", count, s.maxServices))
		return
	}
	for interfaceName := range instance.providers {
		delete(s.entry(interfaceName).instances, instance)
		s.changed[interfaceName] = true
	}
	for interfaceName := range selected {
		s.entry(interfaceName).instances[instance] = true
		s.changed[interfaceName] = true
	}
	s.serviceCount, instance.serviceCount, instance.providers = total, count, selected
}
