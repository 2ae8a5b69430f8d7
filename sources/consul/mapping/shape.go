package mapping

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
	"istio.io/istio/pkg/config/protocol"

	"tributary/resource"
)

// shape is what the ServiceEntries of a host look like, apart from endpoints. It depends on all instances and not on their
// health, so that a check that fails changes endpoints and nothing else. All that have the ports of a group have all of it, so
// that no endpoint lacks a port of its ServiceEntry: to Istio it would have that port all the same, as the service's own.
type shape struct {
	groups [][]servicePort
}

type servicePort struct {
	portKey
	label     string // the name that the ServiceEntries have for it
	number    uint32
	isDefault bool
}

func (s shape) all() []servicePort { return slices.Concat(s.groups...) }

// shapeOf works out the shape of a host from all instances, and what it was before.
func (m *Mapper) shapeOf(host string, instances []*instance, before shape, w *warner) shape {
	type uses struct {
		holders   []int
		numbers   map[uint32]int
		wanted    map[uint32]int
		isDefault bool
	}
	byKey := map[portKey]*uses{}
	for i, one := range instances {
		for _, p := range one.ports {
			u := byKey[p.portKey]
			if u == nil {
				u = &uses{numbers: map[uint32]int{}, wanted: map[uint32]int{}}
				byKey[p.portKey] = u
			}
			u.holders = append(u.holders, i)
			u.numbers[p.number]++
			if p.isDefault {
				u.isDefault = true
				if one.wantsPort > 0 {
					u.wanted[one.wantsPort]++
				}
			}
		}
	}
	if len(byKey) == 0 {
		return before
	}
	keys := slices.SortedFunc(maps.Keys(byKey), func(a, b portKey) int {
		ua, ub := byKey[a], byKey[b]
		if ua.isDefault != ub.isDefault {
			if ua.isDefault {
				return -1
			}
			return 1
		}
		if ua.isDefault {
			if c := cmp.Compare(len(ub.holders), len(ua.holders)); c != 0 {
				return c
			}
		}
		return comparePortKeys(a, b)
	})
	labels := portLabels(keys)
	ports := make([]servicePort, len(keys))
	for i, k := range keys {
		ports[i] = servicePort{portKey: k, label: labels[k], isDefault: byKey[k].isDefault}
	}
	m.number(host, ports, before, func(p servicePort) (wanted, most uint32) {
		u := byKey[p.portKey]
		return mostFrequent(u.wanted), mostFrequent(u.numbers)
	}, w)

	var s shape
	group := map[string]int{}
	for _, p := range ports {
		holders := string(appendInts(nil, byKey[p.portKey].holders))
		g, known := group[holders]
		if !known {
			g = len(s.groups)
			group[holders] = g
			s.groups = append(s.groups, nil)
		}
		s.groups[g] = append(s.groups[g], p)
	}
	return s
}

// number gives each port a number of its own on the host.
func (m *Mapper) number(host string, ports []servicePort, before shape, wishes func(servicePort) (wanted, most uint32), w *warner) {
	taken := map[uint32]portKey{}
	try := func(p *servicePort, n uint32) bool {
		if n == 0 || p.number != 0 {
			return false
		}
		if _, t := taken[n]; t {
			return false
		}
		p.number, taken[n] = n, p.portKey
		return true
	}
	firstDefault := -1
	for i := range ports {
		if ports[i].isDefault {
			firstDefault = i
			break
		}
	}
	if firstDefault >= 0 {
		p := &ports[firstDefault]
		wanted, _ := wishes(*p)
		try(p, cmp.Or(uint32(m.o.ServicePort), wanted))
	}
	// By label, because that is what Restore has.
	old := map[portKey]uint32{}
	for _, p := range before.all() {
		old[portKey{p.label, p.protocol}] = p.number
	}
	madeUp := func(p *servicePort) bool { return old[portKey{p.label, p.protocol}] == hashPort(host, p.label, 0) }
	for i := range ports {
		if p := &ports[i]; !madeUp(p) {
			try(p, old[portKey{p.label, p.protocol}])
		}
	}
	// A default port whose name or protocol changed is the default port still.
	if firstDefault >= 0 && ports[firstDefault].number == 0 {
		for _, p := range before.all() {
			if p.isDefault && try(&ports[firstDefault], p.number) {
				break
			}
		}
	}
	for i := range ports {
		p := &ports[i]
		_, most := wishes(*p)
		if try(p, most) || p.number != 0 {
			continue
		}
		rival := taken[most]
		for n := hashPort(host, p.label, 0); !try(p, n); n = hashPort(host, p.label, n) {
		}
		if rival.name == p.name || rival.protocol != p.protocol {
			w.add("port " + p.name + " (" + string(p.protocol) + ") and " + rival.name + " (" + string(rival.protocol) +
				") have one number: instances disagree on the protocol")
		}
	}
}

// portLabels gives each port a name that a ServiceEntry can have. Where one name has several protocols all but the first have
// the protocol with it.
func portLabels(keys []portKey) map[portKey]string {
	names := map[string]portKey{}
	var raw []string
	for _, k := range keys {
		name := k.name
		if _, taken := names[name]; taken {
			name += "-" + strings.ToLower(string(k.protocol))
		}
		for {
			if _, taken := names[name]; !taken {
				break
			}
			name += "-"
		}
		names[name] = k
		raw = append(raw, name)
	}
	labels := make(map[portKey]string, len(keys))
	for name, l := range distinct(raw) {
		labels[names[name]] = l
	}
	return labels
}

// mostFrequent returns the number that is there most often, the lowest of several, or 0.
func mostFrequent(counts map[uint32]int) (most uint32) {
	for n, c := range counts {
		if most == 0 || c > counts[most] || c == counts[most] && n < most {
			most = n
		}
	}
	return most
}

// shapesOf reads the shapes of hosts from ServiceEntries that were made of them.
func shapesOf(rs []*resource.Resource) map[string]shape {
	shapes := map[string]shape{}
	rs = slices.SortedFunc(slices.Values(rs), func(a, b *resource.Resource) int {
		return cmp.Or(cmp.Compare(len(a.Key().Name), len(b.Key().Name)), a.Key().Compare(b.Key()))
	})
	for _, r := range rs {
		if r.Key().Kind != resource.ServiceEntry {
			continue
		}
		spec, err := r.Spec()
		se, ok := spec.(*networking.ServiceEntry)
		if err != nil || !ok {
			continue
		}
		for _, host := range se.Hosts {
			s := shapes[host]
			var group []servicePort
			for i, p := range se.Ports {
				group = append(group, servicePort{
					portKey: portKey{p.Name, protocol.Parse(p.Protocol)}, label: p.Name, number: p.Number,
					isDefault: i == 0 && len(s.groups) == 0,
				})
			}
			s.groups = append(s.groups, group)
			shapes[host] = s
		}
	}
	return shapes
}
