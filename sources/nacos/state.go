package nacos

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tributary/resource"
	"tributary/sources/nacos/client"
	"tributary/sources/nacos/mapping"
	"tributary/sources/registry"
)

// state has the listed services of a Nacos. It does no I/O and has no clock. The mu of run guards it.
type state struct {
	*registry.Machine[mapping.ID]
	mapper   *mapping.Mapper
	groups   map[string]*group
	services map[key]*service
}

type key struct{ group, service string }

func (k key) compare(o key) int {
	return cmp.Or(cmp.Compare(k.group, o.group), cmp.Compare(k.service, o.service))
}

// id returns the name of the service's published group.
func (k key) id() mapping.ID { return mapping.ID{NacosGroup: k.group, Service: k.service} }

// keyOf returns the service of a published group.
func keyOf(published string) key {
	group, service, _ := strings.Cut(published, "@@")
	return key{group, service}
}

// group is the state of the names of a group's services.
type group struct {
	read    bool
	err     error // of the last read
	dubbo   int   // skipped services of Dubbo
	skipped int   // services that the settings skip
}

// service is the state of a selected service.
type service struct {
	settled bool  // its instances were read, are unreadable, or an earlier run published some
	read    bool  // its instances were read
	err     error // of the last read
	dubbo   bool  // some are of an application of Dubbo
}

// newState returns an empty state.
func newState(m *mapping.Mapper, settings Settings) *state {
	created := &state{mapper: m, groups: map[string]*group{}, services: map[key]*service{}}
	created.Machine = registry.NewMachine(m, func(mapping.ID) time.Duration { return settings.KeepEmpty }, nil)
	for _, name := range settings.Groups {
		created.groups[name] = &group{}
	}
	return created
}

// restore restores the published resources of a service, which are removed if the settings no longer select it.
func (s *state) restore(published string, resources []*resource.Resource, settings Settings) {
	key := keyOf(published)
	if s.groups[key.group] == nil || !settings.selects(key.service) {
		s.Take(published, registry.Offers[mapping.ID]{})
		return
	}
	s.services[key] = &service{settled: true}
	s.Restore(published, resources, nil)
}

// takeNames notes the names of all services of a group.
func (s *state) takeNames(name string, names []string, err error) {
	group := s.groups[name]
	if group == nil {
		return
	}
	if group.err = err; err != nil {
		return
	}
	group.read = true
	listed := make(map[string]bool, len(names))
	for _, serviceName := range names {
		listed[serviceName] = true
		if k := (key{name, serviceName}); s.services[k] == nil {
			s.services[k] = &service{}
		}
	}
	for key := range s.services {
		if key.group == name && !listed[key.service] {
			delete(s.services, key)
			s.Take(key.id().Group(), registry.Offers[mapping.ID]{})
		}
	}
}

// takeInstances notes the instances of a service.
func (s *state) takeInstances(key key, instances []client.Instance, warnings []string, err error) {
	service := s.services[key]
	if service == nil {
		return
	}
	service.settled = true
	if service.err = err; err != nil {
		return // its last instances stay
	}
	selected := slices.DeleteFunc(slices.Clone(instances), isDubboInstance)
	service.read, service.dubbo = true, len(selected) < len(instances)
	s.Take(key.id().Group(), s.mapper.Offers(key.group, key.service, selected, warnings))
}

// settled reports whether all services at the start were read or are unreadable. An unreadable one does not delay the
// others; if all of them are, the rights are missing.
func (s *state) settled() bool {
	read := false
	for _, group := range s.groups {
		if !group.read && group.err == nil {
			return false
		}
		read = read || group.read
	}
	denied := 0
	for _, service := range s.services {
		if !service.settled {
			return false
		}
		if service.err != nil && !service.read {
			denied++
		}
	}
	return read && (denied == 0 || denied < len(s.services))
}

// complete reports whether every group was read.
func (s *state) complete() bool {
	return !slices.ContainsFunc(slices.Collect(maps.Values(s.groups)), func(g *group) bool { return !g.read })
}

// problems names the first unreadable services, and reports whether all are.
func (s *state) problems() (texts []string, everything bool, first error) {
	var services []string
	for _, name := range slices.Sorted(maps.Keys(s.groups)) {
		if err := s.groups[name].err; err != nil {
			texts, first = append(texts, err.Error()), cmp.Or(first, err)
		}
	}
	everything = len(texts) > 0 && len(texts) == len(s.groups)
	for _, k := range slices.SortedFunc(maps.Keys(s.services), key.compare) {
		if err := s.services[k].err; err != nil {
			services, first = append(services, err.Error()), cmp.Or(first, err)
		}
	}
	everything = everything || len(services) > 0 && len(services) == len(s.services)
	return append(texts, registry.First(services, "service", "services")...), everything, first
}

// emptyText describes groups without served services, with counts of the skipped ones. It is empty if a service is
// served.
// Nacos gives the same answer for missing groups and for empty ones.
func (s *state) emptyText(place string) string {
	if services, _ := s.Services(); services > 0 {
		return ""
	}
	dubbo, skipped, empty := 0, 0, 0
	for _, g := range s.groups {
		dubbo += g.dubbo
		skipped += g.skipped
	}
	for _, service := range s.services {
		if service.dubbo {
			dubbo++
		} else {
			empty++
		}
	}
	var instead []string
	for _, reason := range []struct {
		count int
		text  string
	}{
		{dubbo, "%d of Dubbo, which an address without kind=services is for"},
		{skipped, "%d that the settings do not select"},
		{empty, "%d without an instance"},
	} {
		if reason.count > 0 {
			instead = append(instead, fmt.Sprintf(reason.text, reason.count))
		}
	}
	if len(instead) == 0 {
		return "there is no service in " + place
	}
	return "nothing is served: the services in " + place + " are " + strings.Join(instead, ", ")
}
