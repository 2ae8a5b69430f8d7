package dubbo

import (
	"maps"
	"slices"
	"strings"
	"time"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/dubbo/mapping"
	"tributary/sources/dubbo/provider"
	"tributary/sources/dubbo/registry"
	core "tributary/sources/registry"
)

// consuming is what applications consume. What is consumed counts at once, and what is no longer consumed stays for a while: a Sidecar that
// lacks a host breaks calls, and one that has a host too many costs a little memory. It does no I/O and has no clock. The mu of run guards
// it.
type consuming struct {
	known     map[string]map[string]time.Time // by application and host: since when nobody is listed who consumes it; zero while somebody is
	published map[string]bool                 // applications that have a group of their own, also of an earlier run
	dirty     bool                            // what is listed changed
}

func newConsuming() *consuming {
	return &consuming{known: map[string]map[string]time.Time{}, published: map[string]bool{}}
}

// sidecarGroup is before the name of an application in the name of the group of its Sidecar. Nothing that Dubbo registers has a blank in
// its name.
const sidecarGroup = "sidecar of "

// restore remembers what an earlier run published. It reports whether the group is of a Sidecar.
func (s *state) restoreSidecar(group string, rs []*resource.Resource) bool {
	application, ok := strings.CutPrefix(group, sidecarGroup)
	if !ok {
		return false
	}
	s.consuming.published[application], s.consuming.dirty = true, true
	for app, hosts := range s.mapper.Consumed(rs) {
		s.consuming.known[app] = map[string]time.Time{}
		for _, h := range hosts {
			s.consuming.known[app][h] = time.Time{}
		}
	}
	return true
}

// consumed returns the hosts that each application consumes now.
func (s *state) consumed() map[string]map[string]bool {
	all := map[string]map[string]bool{}
	for name := range s.interfaces {
		for _, c := range s.consumersOf(name) {
			if all[c.Application] == nil {
				all[c.Application] = map[string]bool{}
			}
			c.ID = s.mapper.ServiceOf(c.ID)
			s.Hosts(name, func(id mapping.ID, n core.Name) {
				if c.Consumes(id.Service) {
					all[c.Application][n.Host] = true
				}
			})
		}
	}
	return all
}

// consumersOf returns the consumers of an interface.
func (s *state) consumersOf(name string) (all []provider.Consumer) {
	for _, p := range s.interfaces[name].of(registry.Consumers) {
		all = append(all, p.consumers...)
	}
	return all
}

// settle decides which hosts each application sees, and returns those of which that changed. What is not consumed any more stays for grace.
func (c *consuming) settle(now map[string]map[string]bool, at time.Time, grace time.Duration) (changed []string) {
	for app, hosts := range now {
		if c.known[app] == nil {
			c.known[app] = map[string]time.Time{}
			changed = append(changed, app)
		}
		for h := range hosts {
			if _, there := c.known[app][h]; !there {
				changed = append(changed, app)
			}
			c.known[app][h] = time.Time{}
		}
	}
	for app, hosts := range c.known {
		for h, since := range hosts {
			still, kept := core.Empty(since, now[app][h], at, grace)
			if kept {
				hosts[h] = still
			} else {
				delete(hosts, h)
				changed = append(changed, app)
			}
		}
		if len(hosts) == 0 && now[app] == nil {
			delete(c.known, app)
			changed = append(changed, app)
		}
	}
	slices.Sort(changed)
	return slices.Compact(changed)
}

// next returns when something that is not consumed any more has stayed for long enough; zero if nothing is.
func (c *consuming) next(grace time.Duration) (at time.Time) {
	for _, hosts := range c.known {
		for _, since := range hosts {
			if !since.IsZero() {
				at = core.Earlier(at, since.Add(grace))
			}
		}
	}
	return at
}

// sidecars returns the Sidecars that changed, as the sink takes them. published says that services did. The caller holds mu.
func (r *run) sidecars(now time.Time, published bool) (all []sources.Content) {
	s, c := r.state, r.state.consuming
	var changed []string
	due := c.next(r.settings.SidecarGrace)
	if r.consumers() && (published || c.dirty || !due.IsZero() && !now.Before(due)) {
		changed = c.settle(s.consumed(), now, r.settings.SidecarGrace)
	}
	for application := range c.published { // of an earlier run
		if !r.begunSidecars {
			changed = append(changed, application)
		}
	}
	r.begunSidecars, c.dirty = true, false
	slices.Sort(changed)
	for _, application := range slices.Compact(changed) {
		content := sources.Content{Group: sidecarGroup + application}
		if hosts, there := c.known[application]; there && r.consumers() {
			sidecar, err := r.mapper.Sidecar(application, slices.Sorted(maps.Keys(hosts)))
			if err != nil {
				content.Warnings = append(content.Warnings, err.Error())
			} else {
				content.Resources = append(content.Resources, sidecar)
			}
		}
		all = append(all, content)
	}
	return all
}
