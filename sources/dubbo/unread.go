package dubbo

import (
	"maps"

	"tributary/internal/names"
	"tributary/sources/dubbo/mapping"
	"tributary/sources/dubbo/provider"
	"tributary/sources/dubbo/registry"
	core "tributary/sources/registry"
)

// unread lists what could not be read; what it may contain stays.
type unread struct {
	levels       provider.Levels            // whose list of names was never read, or only in part
	interfaces   map[string]bool            // with a part for providers that was never read, or only in part
	applications map[string]bool            // whose list of instances was never read, or only in part
	instances    map[callAddress]core.State // never read, with port 0, or with unknown services
}

// callAddress is an address at which an application can be called; port 0 is any port there.
type callAddress struct {
	application, address string
	port                 uint32
}

func addressOf(application, host string, port int) callAddress {
	address, err := names.Address(host)
	if err != nil {
		address = host
	}
	return callAddress{mapping.Application(application), address, uint32(port)} //nolint:gosec // a port
}

// addressCounts counts the users of each address, for a quick look-up.
type addressCounts map[callAddress]int

func (s addressCounts) add(all []callAddress) {
	for _, at := range all {
		s[at]++
	}
}

// remove undoes add.
func (s addressCounts) remove(all []callAddress) {
	for _, at := range all {
		if s[at]--; s[at] <= 0 {
			delete(s, at)
		}
	}
}

// addresses returns the addresses of the providers of a part.
func (p *part) addresses() []callAddress {
	all := make([]callAddress, 0, len(p.providers))
	for _, of := range p.providers {
		all = append(all, addressOf(of.Application, of.Host, of.Port))
	}
	return all
}

// addressesOf returns the addresses of endpoints.
func addressesOf(endpoints []core.Known[core.Endpoint]) []callAddress {
	all := make([]callAddress, 0, len(endpoints))
	for _, e := range endpoints {
		all = append(all, callAddress{e.Value.Instance, e.Value.Address, e.Value.Port})
	}
	return all
}

// addresses returns the addresses at which an instance may serve something.
func (i *instance) addresses() map[callAddress]bool {
	if !i.read {
		host, _, err := provider.SplitAddress(i.id)
		if err != nil {
			host = i.id
		}
		return map[callAddress]bool{addressOf(i.application, host, 0): true}
	}
	all := map[callAddress]bool{addressOf(i.application, i.Host, i.Port): true}
	for _, e := range i.Endpoints {
		all[addressOf(i.application, i.Host, e.Port)] = true
	}
	return all
}

// opaque reports whether the services of an instance are unknown.
func (i *instance) opaque() bool {
	return !i.read || i.dubbo && i.lookup != nil && i.lookup.metadata == nil
}

// unreadNow returns what cannot be read now.
func (s *state) unreadNow() unread {
	u := unread{interfaces: map[string]bool{}, applications: map[string]bool{}, instances: map[callAddress]core.State{}}
	for n, l := range s.listed {
		if !s.unwanted[n] && l.unreadable() {
			u.levels |= levels[n]
		}
	}
	for name, i := range s.interfaces {
		if i.unreadable(registry.Providers) {
			u.interfaces[name] = true
		}
	}
	for name, a := range s.applications {
		if a.unreadable() {
			u.applications[mapping.Application(name)] = true
		}
		for _, i := range a.instances {
			if !i.opaque() {
				continue
			}
			for at := range i.addresses() {
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

// stateOf returns the state of an unlisted endpoint of a service: Unreadable if it may be among what was not read at its level.
func (u unread) stateOf(id provider.ID, e core.Endpoint) core.State {
	state, levels := core.Unlisted, provider.Levels(e.Levels)
	if levels&u.levels != 0 || levels&provider.OfInterfaces != 0 && u.interfaces[id.Interface] {
		state = core.Unreadable
	}
	if levels&provider.OfApplications == 0 {
		return state
	}
	for _, at := range []callAddress{{e.Instance, e.Address, 0}, {e.Instance, e.Address, e.Port}} {
		if s, there := u.instances[at]; there {
			state = min(state, s)
		}
	}
	if u.applications[e.Instance] {
		state = min(state, core.Unreadable)
	}
	return state
}

func (u unread) equal(o unread) bool {
	return u.levels == o.levels && maps.Equal(u.interfaces, o.interfaces) && maps.Equal(u.applications, o.applications) &&
		maps.Equal(u.instances, o.instances)
}
