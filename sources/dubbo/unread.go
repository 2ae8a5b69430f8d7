package dubbo

import (
	"maps"

	"tributary/internal/names"
	"tributary/sources/dubbo/mapping"
	"tributary/sources/dubbo/provider"
	"tributary/sources/dubbo/registry"
	core "tributary/sources/registry"
)

// unread is what of a registry was not read, or cannot be: listed, with a content that is not known. What was known of it stays, but for
// what is switched off as a whole.
type unread struct {
	levels       provider.Levels     // at which it was never read what there is, or not all of it
	interfaces   map[string]bool     // with a part for providers that was never read, or not as a whole
	applications map[string]bool     // of which it was never read what instances they have, or not of all
	instances    map[spot]core.State // that were never read, with port 0, and those of which is not known what they serve
}

// spot is where an application can be called; with port 0 it is any of its ports there.
type spot struct {
	application, address string
	port                 uint32
}

func spotOf(application, host string, port int) spot {
	address, err := names.Address(host)
	if err != nil {
		address = host
	}
	return spot{mapping.Application(application), address, uint32(port)} //nolint:gosec // a port
}

// spots says of each how often it is where something is called, so that nobody has to look through everything for one.
type spots map[spot]int

func (s spots) add(all []spot) {
	for _, at := range all {
		s[at]++
	}
}

// remove takes back what was added.
func (s spots) remove(all []spot) {
	for _, at := range all {
		if s[at]--; s[at] <= 0 {
			delete(s, at)
		}
	}
}

// spots are where the providers of a part are called.
func (p *part) spots() []spot {
	all := make([]spot, 0, len(p.providers))
	for _, of := range p.providers {
		all = append(all, spotOf(of.Application, of.Host, of.Port))
	}
	return all
}

// spotsOf are where endpoints are called.
func spotsOf(endpoints []core.Known[core.Endpoint]) []spot {
	all := make([]spot, 0, len(endpoints))
	for _, e := range endpoints {
		all = append(all, spot{e.Value.Instance, e.Value.Address, e.Value.Port})
	}
	return all
}

// spots are where an instance may serve something.
func (i *instance) spots() map[spot]bool {
	if !i.read {
		host, _, err := provider.SplitAddress(i.id)
		if err != nil {
			host = i.id
		}
		return map[spot]bool{spotOf(i.application, host, 0): true}
	}
	all := map[spot]bool{spotOf(i.application, i.Host, i.Port): true}
	for _, e := range i.Endpoints {
		all[spotOf(i.application, i.Host, e.Port)] = true
	}
	return all
}

// opaque reports whether it is not known what an instance serves.
func (i *instance) opaque() bool {
	return !i.read || i.dubbo && i.needs != nil && i.needs.metadata == nil
}

// unreadNow returns what is not read now.
func (s *state) unreadNow() unread {
	u := unread{interfaces: map[string]bool{}, applications: map[string]bool{}, instances: map[spot]core.State{}}
	for n, l := range s.listed {
		if !l.skipped && (!l.read || l.more) {
			u.levels |= levels[n]
		}
	}
	for name, i := range s.interfaces {
		if i.unreadable(registry.Providers) {
			u.interfaces[name] = true
		}
	}
	for name, a := range s.applications {
		if !a.read || a.more {
			u.applications[mapping.Application(name)] = true
		}
		for _, i := range a.instances {
			if !i.opaque() {
				continue
			}
			for at := range i.spots() {
				if i.Off && u.instances[at] != core.Unreadable {
					u.instances[at] = core.Disabled
				} else if !i.Off {
					u.instances[at] = core.Unreadable
				}
			}
		}
	}
	return u
}

// judge says of an endpoint of a service that is not listed whether it may be among what is not read: only at the level at which it was
// registered.
func (u unread) judge(id provider.ID, e core.Endpoint) core.State {
	is, levels := core.Unlisted, provider.Levels(e.Levels)
	if levels&u.levels != 0 || levels&provider.OfInterfaces != 0 && u.interfaces[id.Interface] {
		is = core.Unreadable
	}
	if levels&provider.OfApplications == 0 {
		return is
	}
	for _, at := range []spot{{e.Instance, e.Address, 0}, {e.Instance, e.Address, e.Port}} {
		if said, there := u.instances[at]; there {
			is = min(is, said)
		}
	}
	if u.applications[e.Instance] {
		is = min(is, core.Unreadable)
	}
	return is
}

func (u unread) equal(o unread) bool {
	return u.levels == o.levels && maps.Equal(u.interfaces, o.interfaces) && maps.Equal(u.applications, o.applications) &&
		maps.Equal(u.instances, o.instances)
}
