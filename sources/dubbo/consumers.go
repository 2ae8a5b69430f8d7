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

// consuming tracks which hosts applications call. A new host counts at once; one no longer called stays for a grace period: a missing host
// breaks calls, an extra one costs little. It does no I/O and has no clock. The mu of run guards it.
type consuming struct {
	known     map[string]map[string]time.Time // by application and host: when the last consumer went; zero while there is one
	published map[string]bool                 // applications whose Sidecar an earlier run published
	dirty     bool                            // the listed consumers changed
}

func newConsuming() *consuming {
	return &consuming{known: map[string]map[string]time.Time{}, published: map[string]bool{}}
}

// sidecarGroup precedes the name of an application in the group of its Sidecar. Dubbo's names have no blanks.
const sidecarGroup = "sidecar of "

// restoreSidecar takes back a group that an earlier run published. It reports whether the group is that of a Sidecar.
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

// consumed returns the hosts that each application calls now.
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

// settle updates the hosts of each application and returns the applications that changed.
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
			since = core.EmptySince(since, now[app][h], at)
			if since.IsZero() || at.Sub(since) < grace {
				hosts[h] = since
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

// next returns when the grace period of a host ends first; zero if none runs.
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

// sidecars returns the groups of the Sidecars that changed. published: services changed. The caller holds mu.
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
