package consul

import (
	"context"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hashicorp/consul/api"

	"tributary/internal/names"
	"tributary/sources"
	"tributary/sources/consul"
	"tributary/sources/consul/mapping"
	"tributary/sources/dubbo/provider"
	"tributary/sources/dubbo/registry"
)

// Levels says which registrations are read.
type Levels struct {
	Interfaces, Applications func(name string) bool // nil for none
}

// wants reports whether something that is registered at these levels is read.
func (l Levels) wants(name string, of provider.Levels) bool {
	return of&provider.OfInterfaces != 0 && l.Interfaces != nil && l.Interfaces(name) ||
		of&provider.OfApplications != 0 && l.Applications != nil && l.Applications(name)
}

// Registry is a Consul in which Dubbo's providers register. What its answers prove is decided by Consul's own source, which it follows.
type Registry struct {
	source *consul.Source
	levels Levels

	mu     sync.Mutex
	listed map[string]provider.Levels // of what a service is, by the tags of its instances
}

var _ registry.Registry = (*Registry)(nil)

// New returns the registry in the Consul at address, which is read as settings say. An error begins with the key at fault.
func New(address string, settings consul.Settings, levels Levels) (*Registry, error) {
	r := &Registry{levels: levels, listed: map[string]provider.Levels{}}
	settings.Selects = r.selects
	source, err := consul.NewFollowed(address, settings)
	if err != nil {
		return nil, err
	}
	r.source = source
	return r, nil
}

// selects says of a service whether it is read, and notes what it is.
func (r *Registry) selects(name string, tags []string) bool {
	of := levelsOf(tags)
	r.mu.Lock()
	defer r.mu.Unlock()
	if of == 0 {
		delete(r.listed, name)
	} else {
		r.listed[name] = of
	}
	return r.levels.wants(name, of)
}

// levelsOf returns the levels at which something with these tags is registered; none if it is not Dubbo's.
func levelsOf(tags []string) (of provider.Levels) {
	for _, tag := range tags {
		switch {
		case tag == Tag:
			of |= provider.OfInterfaces
		case provider.OfInstances(tag):
			of |= provider.OfApplications
		}
	}
	return of
}

func (r *Registry) levelsOf(name string) provider.Levels {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.listed[name]
}

// Watch implements registry.Registry. Nobody registers as a consumer in a Consul.
func (r *Registry) Watch(ctx context.Context, to registry.Listener, w registry.Wanted) error {
	f := &follower{registry: r, to: to, notes: w.Notes, services: map[string]provider.Levels{}, before: map[string][]registry.Known{}}
	for _, k := range w.Before {
		f.before[k.Interface] = append(f.before[k.Interface], k)
		if k.Application != "" && k.Application != k.Interface {
			f.before[k.Application] = append(f.before[k.Application], k)
		}
	}
	return r.source.Follow(ctx, f)
}

// Metadata implements registry.Registry: Dubbo's metadata report for Consul has that of a revision below application:revision.
func (r *Registry) Metadata(ctx context.Context, application, revision string) ([]byte, error) {
	content, err := r.source.Key(ctx, application+":"+revision)
	if err == nil && len(content) == 0 {
		err = registry.ErrAbsent
	}
	return content, err
}

// mapped is what keys begin with that say which applications serve an interface: the group of the metadata report, by default, and of the
// mapping.
const mapped = "dubbo:mapping:"

// Mapped implements registry.Registry.
func (r *Registry) Mapped(ctx context.Context) (map[string][]string, error) {
	keys, err := r.source.Keys(ctx, mapped)
	if err != nil {
		return nil, err
	}
	var all registry.Mapping
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if err := all.Add("Consul's KV below "+mapped, strings.TrimPrefix(key, mapped), string(keys[key])); err != nil {
			return nil, err
		}
	}
	return all.InterfacesOf(), nil
}

// follower makes what Consul's source tells of services what Dubbo's wants to know of interfaces and applications.
type follower struct {
	registry *Registry
	to       registry.Listener
	notes    registry.Notes
	before   map[string][]registry.Known // by interface and by application

	// owned by who calls Take
	services   map[string]provider.Levels // those there are; 0 for one of which it is not known what it is
	left       map[string]provider.Levels // those of Dubbo's besides that are not wanted, as the settings say
	connection registry.Connection
	synced     bool
	listed     bool // it was told what there is
}

// Kept implements consul.Follower.
func (f *follower) Kept() []byte {
	if f.notes == nil {
		return nil
	}
	return f.notes.Kept()
}

// Keep implements consul.Follower.
func (f *follower) Keep(note []byte) {
	if f.notes != nil {
		f.notes.Keep(note)
	}
}

// Groups implements consul.Follower.
func (f *follower) Groups() []string { return slices.Sorted(maps.Keys(f.before)) }

// Lost implements consul.Follower. What an application registers as such counts for it, and not for its interfaces.
func (f *follower) Lost(name string, in []mapping.Service) (lost int) {
	there := map[string]bool{}
	for _, e := range entries(in) {
		for _, at := range placesOf(name, e) {
			there[at] = true
		}
	}
	for _, k := range f.before[name] {
		if k.Interface == name && k.Application != name && f.registry.levelsOf(k.Application)&provider.OfApplications != 0 {
			continue
		}
		if !there[placeOf(k.Address, k.Port)] {
			lost++
		}
	}
	return lost
}

// placesOf are where an instance may serve something.
func placesOf(name string, e *api.ServiceEntry) []string {
	if levelsOf(e.Service.Tags)&provider.OfInterfaces != 0 {
		u := Registered(name, e)
		return []string{placeOf(u.Host, u.Port)}
	}
	i, _, _ := Instance(name, e)
	all := []string{placeOf(i.Host, i.Port)}
	for _, endpoint := range i.Endpoints {
		all = append(all, placeOf(i.Host, endpoint.Port))
	}
	return all
}

func placeOf(host string, port int) string {
	if address, err := names.Address(host); err == nil {
		host = address
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

func entries(in []mapping.Service) (all []*api.ServiceEntry) {
	for _, s := range in {
		all = append(all, s.Entries...)
	}
	return all
}

// Take implements consul.Follower.
func (f *follower) Take(now consul.Now) {
	f.connect(now.Health)
	changed := now.Synced && !f.synced || !f.listed && (len(now.Services) > 0 || now.Health.State == sources.Degraded)
	f.synced = f.synced || now.Synced
	if now.Left != nil {
		f.leave(*now.Left)
		changed = true
	}
	for _, s := range now.Services {
		of, there := f.services[s.Name]
		if len(s.In) == 0 && s.Err == nil && !s.More {
			delete(f.services, s.Name)
			changed = changed || there
			continue
		}
		levels := of | f.registry.levelsOf(s.Name)
		for _, e := range entries(s.In) {
			levels |= levelsOf(e.Service.Tags)
		}
		f.services[s.Name] = levels
		changed = changed || !there || levels != of
	}
	if changed {
		f.list()
	}
	for _, s := range now.Services {
		if of, there := f.services[s.Name]; there {
			f.tell(s, of)
		}
	}
}

// connect tells how Consul is, if that has changed.
func (f *follower) connect(h sources.Health) {
	c := registry.Connection{Certain: true, Message: h.Message}
	switch h.State {
	case sources.Denied:
		c.Denied = true
	case sources.Unreachable:
	case sources.Degraded:
		c.Up = true
	default:
		c.Up, c.Message = true, ""
	}
	if c != f.connection {
		f.connection = c
		f.to.Connection(c)
	}
}

// leave notes what is not wanted: some of it is Dubbo's, which is told of by name alone.
func (f *follower) leave(names []string) {
	f.left = map[string]provider.Levels{}
	others := 0
	for _, name := range names {
		switch of := f.registry.levelsOf(name); {
		case of == 0:
			others++
		case !f.registry.levels.wants(name, of): // else it is wanted by now, and told of
			f.left[name] = of
		}
	}
	f.to.Others(others)
}

// list tells which interfaces and applications there are. One of which it is not known what it is may be either.
func (f *follower) list() {
	var parts []registry.Part
	var applications []string
	for _, name := range slices.Sorted(maps.Keys(f.services)) {
		of := f.services[name]
		if of != provider.OfApplications {
			parts = append(parts, partsOf(name)...)
		}
		if of != provider.OfInterfaces {
			applications = append(applications, name)
		}
	}
	for name, of := range f.left {
		if _, there := f.services[name]; there {
			continue
		}
		if of&provider.OfInterfaces != 0 {
			parts = append(parts, partsOf(name)...)
		}
		if of&provider.OfApplications != 0 {
			applications = append(applications, name)
		}
	}
	var err error
	if !f.synced { // of some datacenter it was not yet read what it has
		err = &registry.Incomplete{}
	}
	f.listed = true
	f.to.Parts(parts, err)
	f.to.Applications(applications, err)
}

// partsOf are the parts of an interface, which is one service with all that registers for it.
func partsOf(name string) []registry.Part {
	return []registry.Part{
		{Interface: name, Category: registry.Providers, Node: name},
		{Interface: name, Category: registry.Configurators, Node: name},
	}
}

// tell tells of a service what is registered in it.
func (f *follower) tell(s consul.Service, of provider.Levels) {
	err := s.Err
	if len(s.In) > 0 && (s.Err != nil || s.More) || s.Err == nil && s.More {
		err = &registry.Incomplete{Err: s.Err}
	}
	var asInterface, asApplication []*api.ServiceEntry
	for _, e := range entries(s.In) {
		if levelsOf(e.Service.Tags)&provider.OfInterfaces != 0 {
			asInterface = append(asInterface, e)
		} else {
			asApplication = append(asApplication, e)
		}
	}
	if of != provider.OfApplications {
		var urls []registry.Registered
		for _, e := range asInterface {
			urls = append(urls, registered(s.Name, e))
		}
		for _, p := range partsOf(s.Name) {
			f.to.Registered(p, urls, err)
		}
	}
	if of != provider.OfInterfaces {
		f.instances(s.Name, asApplication, err)
	}
}

// registered returns what an instance registers, and what its checks say of it.
func registered(name string, e *api.ServiceEntry) registry.Registered {
	r := Registered(name, e)
	switch StateOf(e) {
	case Serving:
	case Silent:
		_, rule := r.Configurator()      // an administrator has nobody say that he lives
		r.Silent = r.Err == nil && !rule // what cannot be read is no more than a warning, whoever lives
	case Failing:
		r.Failing = failing(e)
	}
	return r
}

func failing(e *api.ServiceEntry) string { return "checks are " + e.Checks.AggregatedStatus() }

// instances tells of the instances of an application.
func (f *follower) instances(name string, all []*api.ServiceEntry, err error) {
	claims := registry.Claims{}
	for _, e := range all {
		i, ok, err := Instance(name, e)
		switch StateOf(e) {
		case Serving:
		case Silent:
			i.Silent = true
		case Failing:
			if !ok {
				continue
			}
			i.Failing = failing(e)
		}
		claims.Add(placeOf(i.Host, i.Port), e.Service.ID, registry.Claim{Instance: i, Dubbo: ok, Err: err})
	}
	claims.Tell(f.to, name, err)
}
