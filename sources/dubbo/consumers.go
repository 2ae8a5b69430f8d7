package dubbo

import (
	"slices"
	"strings"
	"time"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/dubbo/mapping"
	"tributary/sources/dubbo/registry"
	core "tributary/sources/registry"
)

// consuming tracks which hosts applications call. A new host counts at once; one no longer called stays for a grace period: a missing host
// breaks calls, an extra one costs little. It does no I/O and has no clock. The mu of run guards it.
type consuming struct {
	known     map[string][]core.Known[string] // hosts by application
	next      time.Time                       // when the grace period of a host ends first; zero if none runs
	published map[string]bool                 // applications whose Sidecar an earlier run published
	dirty     bool                            // the listed consumers changed
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
		for _, h := range slices.Compact(slices.Sorted(slices.Values(hosts))) {
			s.consuming.known[app] = append(s.consuming.known[app], core.Known[string]{Value: h})
		}
	}
	return true
}

// consumed returns the hosts that each application calls now.
func (s *state) consumed() map[string]map[string]bool {
	all := map[string]map[string]bool{}
	for name := range s.interfaces {
		for _, p := range s.interfaces[name].of(registry.Consumers) {
			for _, c := range p.consumers {
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
	}
	return all
}

// settle updates the hosts of each application and returns the applications that changed.
func (c *consuming) settle(now map[string]map[string]bool, at time.Time, grace time.Duration) (changed []string) {
	c.next = time.Time{}
	l := core.Listing[string]{Until: func(k core.Known[string]) time.Time { return k.Missing.Add(grace) }}
	for app := range now {
		if _, there := c.known[app]; !there {
			c.known[app], changed = nil, append(changed, app)
		}
	}
	for app, before := range c.known {
		l.Reports = nil
		for h := range now[app] {
			l.Reports = append(l.Reports, core.Report[string]{Value: h, State: core.Listed})
		}
		after, _, next := l.Settle(before, strings.Compare, at)
		c.next = core.Earlier(c.next, next)
		c.known[app] = after
		gone := len(after) == 0 && now[app] == nil
		if gone {
			delete(c.known, app)
		}
		if gone || !slices.EqualFunc(before, after, func(a, b core.Known[string]) bool { return a.Value == b.Value }) {
			changed = append(changed, app)
		}
	}
	return changed
}

// sidecars returns the groups of the Sidecars that changed. published: services changed. The caller holds mu.
func (r *run) sidecars(now time.Time, published bool) (all []sources.Content) {
	s, c := r.state, r.state.consuming
	var changed []string
	if r.consumers() && (published || c.dirty || !c.next.IsZero() && !now.Before(c.next)) {
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
		if known, there := c.known[application]; there && r.consumers() {
			var hosts []string
			for _, h := range known {
				hosts = append(hosts, h.Value)
			}
			sidecar, err := r.mapper.Sidecar(application, hosts)
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
