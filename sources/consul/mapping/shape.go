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

// shape has the groups of ports of a host, one for each ServiceEntry. It depends on all instances and not on their
// health, so that a failing check only changes endpoints. An instance with one port of a group has all of them: Istio
// would give an endpoint that lacks a port the number of the service.
type shape [][]servicePort

type servicePort struct {
	portKey
	label     string // its name in the ServiceEntries
	number    uint32
	isDefault bool
}

// portUse is how instances use a port.
type portUse struct {
	holders   []int          // indexes of the instances that have it, in order
	numbers   map[uint32]int // counts of its numbers
	wanted    map[uint32]int // counts of the service ports that meta asks for
	isDefault bool
}

// defaultCount sorts the default port of most instances first.
func (u *portUse) defaultCount() int {
	if u.isDefault {
		return len(u.holders)
	}
	return 0
}

// shapeOf returns the shape of a host, from all instances and the previous shape.
func (m *Mapper) shapeOf(host string, instances []*instance, before shape, warner *warner) (shape shape) {
	uses := map[portKey]*portUse{}
	for index, i := range instances {
		for _, instancePort := range i.ports {
			use := uses[instancePort.portKey]
			if use == nil {
				use = &portUse{numbers: map[uint32]int{}, wanted: map[uint32]int{}}
				uses[instancePort.portKey] = use
			}
			use.holders = append(use.holders, index)
			use.numbers[instancePort.number]++
			if instancePort.isDefault {
				use.isDefault = true
				if i.wantsPort > 0 {
					use.wanted[i.wantsPort]++
				}
			}
		}
	}
	if len(uses) == 0 {
		return before
	}
	keys := slices.SortedFunc(maps.Keys(uses), func(a, b portKey) int {
		return cmp.Or(uses[b].defaultCount()-uses[a].defaultCount(), comparePortKeys(a, b))
	})
	labels := portLabels(keys)
	ports := make([]servicePort, len(keys))
	for i, key := range keys {
		ports[i] = servicePort{portKey: key, label: labels[key], isDefault: uses[key].isDefault}
	}
	m.assignNumbers(host, ports, before, uses, warner)
	groups := map[string]int{}
	for _, port := range ports {
		holders := fmt.Sprint(uses[port.portKey].holders)
		group, grouped := groups[holders]
		if !grouped {
			group = len(shape)
			groups[holders] = group
			shape = append(shape, nil)
		}
		shape[group] = append(shape[group], port)
	}
	return shape
}

// assignNumbers gives each port a number of its own on the host.
func (m *Mapper) assignNumbers(
	host string, ports []servicePort, before shape, uses map[portKey]*portUse, warner *warner,
) {
	taken := map[uint32]portKey{}
	assign := func(port *servicePort, number uint32) bool {
		if _, used := taken[number]; used || number == 0 || port.number != 0 {
			return false
		}
		port.number = number
		taken[number] = port.portKey
		return true
	}
	first := &ports[0]
	if first.isDefault {
		assign(first, cmp.Or(uint32(m.options.ServicePort), mostFrequent(uses[first.portKey].wanted)))
	}
	// The label identifies a port: Restore has no more of it.
	previous := map[portKey]uint32{}
	for _, p := range slices.Concat(before...) {
		previous[portKey{p.label, p.protocol}] = p.number
	}
	for i := range ports {
		p := &ports[i]
		number := previous[portKey{p.label, p.protocol}]
		if number != hashPort(host, p.label, 0) { // a hash stands for a number that was taken
			assign(p, number)
		}
	}
	// A default port with another name or protocol is still the default port.
	for _, p := range slices.Concat(before...) {
		if first.isDefault && p.isDefault && assign(first, p.number) {
			break
		}
	}
	for i := range ports {
		port := &ports[i]
		most := mostFrequent(uses[port.portKey].numbers)
		if assign(port, most) || port.number != 0 {
			continue
		}
		rival := taken[most]
		for number := hashPort(host, port.label, 0); !assign(port, number); number = hashPort(host, port.label, number) {
		}
		if rival.name == port.name || rival.protocol != port.protocol {
			warner.add("port " + port.name + " (" + string(port.protocol) + ") and " + rival.name + " (" +
				string(rival.protocol) +
				") have one number: instances disagree on the protocol")
		}
	}
}

// hashPort returns a registered port for a port that cannot have its own number; after is a number that is taken.
func hashPort(host, port string, after uint32) uint32 {
	const low, high = 10000, 49151
	if after != 0 {
		return low + (after+1-low)%(high-low+1)
	}
	number, _ := strconv.ParseUint(hash(host, port)[:8], 16, 32) // a hash has hexadecimal digits
	return low + uint32(number)%(high-low+1)
}

// portLabels gives each port a name that a ServiceEntry can have. All but the first port of one name have their
// protocol in it.
func portLabels(keys []portKey) map[portKey]string {
	byName := map[string]portKey{}
	for _, key := range keys {
		name, suffix := key.name, "-"+strings.ToLower(string(key.protocol))
		for byName[name] != (portKey{}) {
			name, suffix = name+suffix, "-"
		}
		byName[name] = key
	}
	labels := make(map[portKey]string, len(keys))
	for name, label := range distinct(slices.Collect(maps.Keys(byName))) {
		labels[byName[name]] = label
	}
	return labels
}

// mostFrequent returns the lowest of the most frequent numbers, or 0.
func mostFrequent(counts map[uint32]int) (most uint32) {
	for _, number := range slices.Sorted(maps.Keys(counts)) {
		if counts[number] > counts[most] {
			most = number
		}
	}
	return most
}

// shapesOf returns the shapes of hosts from their ServiceEntries.
func shapesOf(objects []*resource.Resource) map[string]shape {
	shapes := map[string]shape{}
	objects = slices.SortedFunc(slices.Values(objects), func(a, b *resource.Resource) int {
		return cmp.Or(cmp.Compare(len(a.Key().Name), len(b.Key().Name)), a.Key().Compare(b.Key()))
	})
	for _, object := range objects {
		spec, err := object.Spec()
		entry, ok := spec.(*networking.ServiceEntry)
		if err != nil || !ok {
			continue
		}
		for _, host := range entry.Hosts {
			var group []servicePort
			for i, p := range entry.Ports {
				group = append(group, servicePort{
					portKey: portKey{p.Name, protocol.Parse(p.Protocol)}, label: p.Name, number: p.Number,
					isDefault: i == 0 && len(shapes[host]) == 0,
				})
			}
			shapes[host] = append(shapes[host], group)
		}
	}
	return shapes
}
