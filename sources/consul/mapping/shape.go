package mapping

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
	"istio.io/istio/pkg/config/protocol"

	"tributary/resource"
)

// shape is what the ServiceEntries of a host look like, apart from endpoints: the ports of each. It depends on all instances and not on
// their health, so that a check that fails changes endpoints and nothing else. All that have the ports of a group have all of it, so
// that no endpoint lacks a port of its ServiceEntry: to Istio it would have that port all the same, as the service's own.
type shape [][]servicePort

type servicePort struct {
	portKey
	label     string // the name that the ServiceEntries have for it
	number    uint32
	isDefault bool
}

// uses is how instances use a port.
type uses struct {
	holders         []int // the instances that have it, in order
	numbers, wanted map[uint32]int
	isDefault       bool
}

// shapeOf works out the shape of a host from all instances, and what it was before.
func (m *Mapper) shapeOf(host string, instances []*instance, before shape, w *warner) (s shape) {
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
	asDefault := func(k portKey) int { // how many have it, so that the default port that most have is the first of all
		if u := byKey[k]; u.isDefault {
			return len(u.holders)
		}
		return 0
	}
	keys := slices.SortedFunc(maps.Keys(byKey), func(a, b portKey) int {
		return cmp.Or(asDefault(b)-asDefault(a), comparePortKeys(a, b))
	})
	labels := portLabels(keys)
	ports := make([]servicePort, len(keys))
	for i, k := range keys {
		ports[i] = servicePort{portKey: k, label: labels[k], isDefault: byKey[k].isDefault}
	}
	m.number(host, ports, before, byKey, w)
	group := map[string]int{}
	for _, p := range ports {
		holders := fmt.Sprint(byKey[p.portKey].holders)
		g, known := group[holders]
		if !known {
			g = len(s)
			group[holders] = g
			s = append(s, nil)
		}
		s[g] = append(s[g], p)
	}
	return s
}

// number gives each port a number of its own on the host.
func (m *Mapper) number(host string, ports []servicePort, before shape, byKey map[portKey]*uses, w *warner) {
	taken := map[uint32]portKey{}
	try := func(p *servicePort, n uint32) bool {
		if _, is := taken[n]; is || n == 0 || p.number != 0 {
			return false
		}
		p.number, taken[n] = n, p.portKey
		return true
	}
	first := &ports[0]
	if first.isDefault {
		try(first, cmp.Or(uint32(m.o.ServicePort), mostFrequent(byKey[first.portKey].wanted)))
	}
	// By label, because that is what Restore has.
	old := map[portKey]uint32{}
	for _, p := range slices.Concat(before...) {
		old[portKey{p.label, p.protocol}] = p.number
	}
	for i := range ports {
		p := &ports[i]
		if n := old[portKey{p.label, p.protocol}]; n != hashPort(host, p.label, 0) { // which was made up
			try(p, n)
		}
	}
	// A default port whose name or protocol changed is the default port still.
	for _, p := range slices.Concat(before...) {
		if first.isDefault && p.isDefault && try(first, p.number) {
			break
		}
	}
	for i := range ports {
		p := &ports[i]
		most := mostFrequent(byKey[p.portKey].numbers)
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

// hashPort returns a port for what cannot have the one that it asks for, among the registered ones; after is one that is
// taken.
func hashPort(host, port string, after uint32) uint32 {
	const low, high = 10000, 49151
	if after != 0 {
		return low + (after+1-low)%(high-low+1)
	}
	n, _ := strconv.ParseUint(hash(host, port)[:8], 16, 32) // of a hash in hexadecimal
	return low + uint32(n)%(high-low+1)
}

// portLabels gives each port a name that a ServiceEntry can have. Where one name has several protocols all but the first have
// the protocol with it.
func portLabels(keys []portKey) map[portKey]string {
	byName := map[string]portKey{}
	for _, k := range keys {
		name, more := k.name, "-"+strings.ToLower(string(k.protocol))
		for byName[name] != (portKey{}) {
			name, more = name+more, "-"
		}
		byName[name] = k
	}
	labels := make(map[portKey]string, len(keys))
	for name, l := range distinct(slices.Collect(maps.Keys(byName))) {
		labels[byName[name]] = l
	}
	return labels
}

// mostFrequent returns the number that is there most often, the lowest of several, or 0.
func mostFrequent(counts map[uint32]int) (most uint32) {
	for _, n := range slices.Sorted(maps.Keys(counts)) {
		if counts[n] > counts[most] {
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
					isDefault: i == 0 && len(s) == 0,
				})
			}
			shapes[host] = append(s, group)
		}
	}
	return shapes
}
