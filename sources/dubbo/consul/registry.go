package consul

import (
	"context"
	"maps"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hashicorp/consul/api"

	"tributary/internal/names"
	"tributary/sources"
	"tributary/sources/consul"
	"tributary/sources/consul/mapping"
	"tributary/sources/dubbo/backend"
	"tributary/sources/dubbo/provider"
)

// Filter selects the registrations to read.
type Filter struct {
	Interfaces, Applications func(name string) bool // nil for none
}

// matches reports whether a service with registrations at these levels is read.
func (f Filter) matches(name string, levels provider.Levels) bool {
	return levels&provider.OfInterfaces != 0 && f.Interfaces != nil && f.Interfaces(name) ||
		levels&provider.OfApplications != 0 && f.Applications != nil && f.Applications(name)
}

// Registry is a Consul with registrations of Dubbo's providers. It is a publisher of Consul's own source, which decides
// which answers to trust.
type Registry struct {
	source *consul.Source
	filter Filter

	mu     sync.Mutex
	listed map[string]provider.Levels // by service, from the tags of its instances
}

var _ backend.Registry = (*Registry)(nil)

// New returns the registry in the Consul at address. settings are those of Consul's source. An error begins with the
// key at fault.
func New(address string, settings consul.Settings, filter Filter) (*Registry, error) {
	address, err := sourceAddress(address)
	if err != nil {
		return nil, err
	}
	dubbo := &Registry{filter: filter, listed: map[string]provider.Levels{}}
	settings.Selects = dubbo.selects
	source, err := consul.NewReader(address, settings)
	if err != nil {
		return nil, err
	}
	dubbo.source = source
	return dubbo, nil
}

// selects reports whether a service is read, and stores its levels.
func (r *Registry) selects(name string, tags []string) bool {
	levels := levelsOf(tags)
	r.mu.Lock()
	defer r.mu.Unlock()
	if levels == 0 {
		delete(r.listed, name)
	} else {
		r.listed[name] = levels
	}
	return r.filter.matches(name, levels)
}

// levelsOf returns the levels of a service with these tags; none if it is not Dubbo's.
func levelsOf(tags []string) (levels provider.Levels) {
	for _, tag := range tags {
		switch {
		case tag == Tag:
			levels |= provider.OfInterfaces
		case provider.OfInstances(tag):
			levels |= provider.OfApplications
		}
	}
	return levels
}

func (r *Registry) levelsOf(name string) provider.Levels {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.listed[name]
}

// Watch implements backend.Registry. Consumers do not register in Consul.
func (r *Registry) Watch(ctx context.Context, to backend.Listener, wanted backend.Wanted) error {
	follower := &follower{
		Notes: wanted.Notes, registry: r, to: to, services: map[string]provider.Levels{},
		before: map[string][]backend.PublishedProvider{},
	}
	for _, instance := range wanted.Before {
		follower.before[instance.Interface] = append(follower.before[instance.Interface], instance)
		if instance.Application != "" && instance.Application != instance.Interface {
			follower.before[instance.Application] = append(follower.before[instance.Application], instance)
		}
	}
	return r.source.Read(ctx, follower)
}

// Metadata implements backend.Registry: the key of a revision in Dubbo's metadata report is application:revision.
func (r *Registry) Metadata(ctx context.Context, application, revision string) ([]byte, error) {
	content, err := r.source.Key(ctx, application+":"+revision)
	if err == nil && len(content) == 0 {
		err = backend.ErrAbsent
	}
	return content, err
}

// mapped is the prefix of the keys of the mapping: the default group of the metadata report, and that of the mapping.
const mapped = "dubbo:mapping:"

// Mapped implements backend.Registry.
func (r *Registry) Mapped(ctx context.Context) (map[string][]string, error) {
	keys, err := r.source.Keys(ctx, mapped)
	if err != nil {
		return nil, err
	}
	var mapping backend.Mapping
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if err := mapping.Add("Consul's KV below "+mapped, strings.TrimPrefix(key, mapped), string(keys[key])); err != nil {
			return nil, err
		}
	}
	return mapping.ByApplication(), nil
}

// follower turns the services of Consul's source into interfaces and applications.
type follower struct {
	backend.Notes

	registry *Registry
	to       backend.Listener
	before   map[string][]backend.PublishedProvider // by interface and by application

	// owned by the caller of Publish
	services   map[string]provider.Levels // 0 if the levels are unknown
	skipped    map[string]provider.Levels // Dubbo's services that the settings leave out
	connection backend.Connection
	synced     bool
	listed     bool // the first lists were delivered
}

// Groups implements consul.Publisher.
func (f *follower) Groups(recorded []string, complete bool) []string {
	if complete {
		return recorded
	}
	return slices.AppendSeq(recorded, maps.Keys(f.before))
}

// Names implements consul.Publisher. Services do not depend on the names of others.
func (f *follower) Names([]string) []string { return nil }

// Lost implements consul.Publisher. A provider that its application registers counts for the application, not for its
// interfaces.
func (f *follower) Lost(name string, scopes []mapping.Service) (lost int) {
	listed := map[string]bool{}
	for _, e := range entries(scopes) {
		for _, place := range placesOf(name, e) {
			listed[place] = true
		}
	}
	for _, instance := range f.before[name] {
		if instance.Interface == name && instance.Application != name &&
			f.registry.levelsOf(instance.Application)&provider.OfApplications != 0 {
			continue
		}
		if !listed[placeOf(instance.Address, instance.Port)] {
			lost++
		}
	}
	return lost
}

// placesOf returns the addresses at which an instance may serve something.
func placesOf(name string, serviceEntry *api.ServiceEntry) []string {
	if levelsOf(serviceEntry.Service.Tags)&provider.OfInterfaces != 0 {
		u := ParseRegistration(name, serviceEntry)
		return []string{placeOf(u.Host, u.Port)}
	}
	i, _, _ := Instance(name, serviceEntry)
	places := []string{placeOf(i.Host, i.Port)}
	for _, endpoint := range i.Endpoints {
		places = append(places, placeOf(i.Host, endpoint.Port))
	}
	return places
}

func placeOf(host string, port int) string {
	if address, err := names.Address(host); err == nil {
		host = address
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

func entries(services []mapping.Service) (entries []*api.ServiceEntry) {
	for _, s := range services {
		entries = append(entries, s.Entries...)
	}
	return entries
}

// Publish implements consul.Publisher.
func (f *follower) Publish(now consul.Changes) {
	f.connect(now.Health, now.Unconfirmed)
	changed := now.Synced && !f.synced || !f.listed && (len(now.Services) > 0 || now.Health.State == sources.Degraded)
	f.synced = f.synced || now.Synced
	if now.Unselected != nil {
		f.leave(*now.Unselected)
		changed = true
	}
	for _, service := range now.Services {
		before, selected := f.services[service.Name]
		if len(service.Scopes) == 0 && len(service.Rejects) == 0 && !service.Incomplete {
			delete(f.services, service.Name)
			changed = changed || selected
			continue
		}
		levels := before | f.registry.levelsOf(service.Name)
		for _, e := range entries(service.Scopes) {
			levels |= levelsOf(e.Service.Tags)
		}
		f.services[service.Name] = levels
		changed = changed || !selected || levels != before
	}
	if changed {
		f.list()
	}
	for _, s := range now.Services {
		if levels, selected := f.services[s.Name]; selected {
			f.tell(s, levels)
		}
	}
}

// connect reports the state of Consul if it has changed.
func (f *follower) connect(h sources.Health, unconfirmed map[string]string) {
	connection := backend.Connection{Certain: true, Message: h.Message, Unconfirmed: unconfirmed, HoldEnd: h.End}
	switch h.State {
	case sources.Denied:
		connection.Denied = true
	case sources.Unreachable:
	case sources.Degraded:
		connection.Up = true
	default:
		connection.Up, connection.Message = true, ""
	}
	if !reflect.DeepEqual(connection, f.connection) {
		f.connection = connection
		f.to.Connection(connection)
	}
}

// leave takes the names that are left out. Those of Dubbo's are reported by name only, the others counted.
func (f *follower) leave(names []string) {
	f.skipped = map[string]provider.Levels{}
	count := 0
	for _, name := range names {
		switch levels := f.registry.levelsOf(name); {
		case levels == 0:
			count++
		case !f.registry.filter.matches(name, levels): // else it will be delivered
			f.skipped[name] = levels
		}
	}
	f.to.CountOthers(count)
}

// list delivers the names of interfaces and applications. A service with unknown levels may be either.
func (f *follower) list() {
	var parts []backend.Part
	var applications []string
	for _, name := range slices.Sorted(maps.Keys(f.services)) {
		levels := f.services[name]
		if levels != provider.OfApplications {
			parts = append(parts, partsOf(name)...)
		}
		if levels != provider.OfInterfaces {
			applications = append(applications, name)
		}
	}
	for name, levels := range f.skipped {
		if _, selected := f.services[name]; selected {
			continue
		}
		if levels&provider.OfInterfaces != 0 {
			parts = append(parts, partsOf(name)...)
		}
		if levels&provider.OfApplications != 0 {
			applications = append(applications, name)
		}
	}
	var err error
	if !f.synced { // some datacenter was not read yet
		err = &backend.Incomplete{}
	}
	f.listed = true
	f.to.Parts(parts, err)
	f.to.Applications(applications, err)
}

// partsOf returns the parts of an interface, which all are in one service.
func partsOf(name string) []backend.Part {
	return []backend.Part{
		{Interface: name, Category: backend.Providers, Node: name},
		{Interface: name, Category: backend.Configurators, Node: name},
	}
}

// tell delivers the registrations of a service.
func (f *follower) tell(service consul.Service, levels provider.Levels) {
	err := service.Err()
	if len(service.Scopes) > 0 && (err != nil || service.Incomplete) || err == nil && service.Incomplete {
		err = &backend.Incomplete{Err: err}
	}
	var asInterface, asApplication []*api.ServiceEntry
	for _, serviceEntry := range entries(service.Scopes) {
		if levelsOf(serviceEntry.Service.Tags)&provider.OfInterfaces != 0 {
			asInterface = append(asInterface, serviceEntry)
		} else {
			asApplication = append(asApplication, serviceEntry)
		}
	}
	if levels != provider.OfApplications {
		var urls []backend.Registration
		for _, e := range asInterface {
			urls = append(urls, registrationOf(service.Name, e))
		}
		for _, p := range partsOf(service.Name) {
			f.to.Registered(p, urls, err)
		}
	}
	if levels != provider.OfInterfaces {
		f.instances(service.Name, asApplication, err)
	}
}

// registrationOf returns the registration of an instance, with the state of its checks.
func registrationOf(name string, serviceEntry *api.ServiceEntry) backend.Registration {
	registration := ParseRegistration(name, serviceEntry)
	switch StateOf(serviceEntry) {
	case Serving:
	case Unverified:
		_, rule := registration.Configurator()                     // an administrator sends no heartbeats
		registration.Unverified = registration.Err == nil && !rule // one that cannot be read is only a warning anyway
	case Failing:
		registration.Failing = failing(serviceEntry)
	}
	return registration
}

func failing(e *api.ServiceEntry) string { return "checks are " + e.Checks.AggregatedStatus() }

// instances delivers the instances of an application.
func (f *follower) instances(name string, entries []*api.ServiceEntry, err error) {
	claims := backend.Claims{}
	for _, serviceEntry := range entries {
		i, ok, err := Instance(name, serviceEntry)
		switch StateOf(serviceEntry) {
		case Serving:
		case Unverified:
			i.Unverified = true
		case Failing:
			if !ok {
				continue
			}
			i.Failing = failing(serviceEntry)
		}
		claims.Add(placeOf(i.Host, i.Port), serviceEntry.Service.ID, backend.Claim{Instance: i, Dubbo: ok, Err: err})
	}
	claims.Deliver(f.to, name, err)
}
