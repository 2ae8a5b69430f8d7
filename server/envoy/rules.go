package envoy

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// rule is an object that says something of hosts: a DestinationRule or a VirtualService.
type rule[T any] struct {
	key      resource.Key
	created  time.Time
	version  string
	spec     T
	hosts    []string // whole names, in lower case; they may be wildcards
	exportTo []string
	leadsTo  []string // other hosts, on whose services it depends
	places   []place  // of its HTTP routes, if they are not all its own
}

// httpRoute is where one of the HTTP routes stands.
func (r *rule[T]) httpRoute(i int) place {
	if r.places != nil {
		return r.places[i]
	}
	return place{r.key, fmt.Sprintf("spec.http[%d]", i)}
}

// rules are the rules of a kind, by the hosts of which they speak.
type rules[T any] struct {
	byKey map[resource.Key]*rule[T]
	exact map[string][]*rule[T] // the oldest first, as all lists of them
	wild  map[string][]*rule[T]
	leads map[string][]*rule[T] // by the hosts that they lead to

	lengths  []int // of the wildcards, the longest first
	ofLength map[int]int
}

func newRules[T any]() *rules[T] {
	return &rules[T]{byKey: make(map[resource.Key]*rule[T]), exact: make(map[string][]*rule[T]), wild: make(map[string][]*rule[T]), leads: make(map[string][]*rule[T]), ofLength: make(map[int]int)}
}

// set makes r the rule of a key, which has none any more if r is nil. It returns the hosts of which the one spoke or the other speaks.
func (rs *rules[T]) set(key resource.Key, r *rule[T]) (hosts []string) {
	if old := rs.byKey[key]; old != nil {
		hosts = append(hosts, old.hosts...)
		rs.eachList(old, func(list []*rule[T]) []*rule[T] {
			return slices.DeleteFunc(slices.Clone(list), func(r *rule[T]) bool { return r == old })
		})
		delete(rs.byKey, key)
	}
	if r == nil {
		return hosts
	}
	rs.byKey[key] = r
	rs.eachList(r, func(list []*rule[T]) []*rule[T] {
		i, _ := slices.BinarySearchFunc(list, r, olderRule)
		return slices.Insert(slices.Clone(list), i, r)
	})
	return append(hosts, r.hosts...)
}

// eachList replaces the lists that r is, or is to be, in.
func (rs *rules[T]) eachList(r *rule[T], with func([]*rule[T]) []*rule[T]) {
	in := func(lists map[string][]*rule[T], host string) {
		if lists[host] = with(lists[host]); len(lists[host]) == 0 {
			delete(lists, host)
		}
	}
	for _, host := range r.hosts {
		if isWildcard(host) {
			had := len(rs.wild)
			in(rs.wild, host)
			rs.count(len(host), len(rs.wild)-had)
		} else {
			in(rs.exact, host)
		}
	}
	for _, host := range r.leadsTo {
		in(rs.leads, host)
	}
}

// count notes that there are more wildcards of a length, or less.
func (rs *rules[T]) count(length, more int) {
	if more == 0 {
		return
	}
	if rs.ofLength[length] += more; rs.ofLength[length] == 0 {
		delete(rs.ofLength, length)
	}
	rs.lengths = slices.SortedFunc(maps.Keys(rs.ofLength), func(a, b int) int { return b - a })
}

// of yields the rules that speak of host: those that name it, then those of the wildcards that match it, the narrowest first; of
// each the oldest first.
func (rs *rules[T]) of(host string) iter.Seq2[string, *rule[T]] {
	return func(yield func(string, *rule[T]) bool) {
		for _, r := range rs.exact[host] {
			if !yield(host, r) {
				return
			}
		}
		ending := strings.TrimPrefix(host, "*")
		for _, length := range rs.lengths {
			if length > 1+len(ending) {
				continue
			}
			wildcard := "*" + ending[len(ending)+1-length:]
			for _, r := range rs.wild[wildcard] {
				if !yield(wildcard, r) {
					return
				}
			}
		}
	}
}

func (r *rule[T]) seniority(client string) seniority {
	return seniorityOf(r.key, r.created, r.exportTo, client)
}

func olderRule[T any](a, b *rule[T]) int {
	return cmp.Or(a.created.Compare(b.created), olderName(a.key, b.key))
}

// visibleTo says whether something of a namespace that is exported so is visible to another one. What says nothing is exported to all.
func visibleTo(exportTo []string, of, to string) bool {
	return len(exportTo) == 0 || slices.ContainsFunc(exportTo, func(e string) bool { return e == "*" || e == to || e == "." && of == to })
}

func isWildcard(host string) bool { return strings.HasPrefix(host, "*") }

// matches says whether a host, or all that it stands for if it is a wildcard itself, is one of those that pattern stands for.
func matches(pattern, host string) bool {
	if !isWildcard(pattern) {
		return pattern == host
	}
	return strings.HasSuffix(strings.TrimPrefix(host, "*"), pattern[1:])
}

// wholeName completes a host without dots by the namespace of the object that names it, as istiod does with what it reads over MCP.
func wholeName(host, namespace string) string {
	host = strings.ToLower(host)
	if strings.Contains(host, ".") || isWildcard(host) || namespace == "" {
		return host
	}
	return host + "." + namespace
}

func destinationRule(r *resource.Resource, spec *networking.DestinationRule) *rule[*networking.DestinationRule] {
	if spec == nil {
		return nil
	}
	return &rule[*networking.DestinationRule]{
		key: r.Key(), created: r.Created(), version: r.Version(), spec: spec,
		hosts: []string{wholeName(spec.GetHost(), r.Key().Namespace)}, exportTo: spec.GetExportTo(),
	}
}

func virtualService(r *resource.Resource, spec *networking.VirtualService) *rule[*networking.VirtualService] {
	if spec == nil {
		return nil
	}
	namespace := r.Key().Namespace
	v := &rule[*networking.VirtualService]{key: r.Key(), created: r.Created(), version: r.Version(), spec: spec, exportTo: spec.GetExportTo()}
	for _, host := range spec.GetHosts() {
		v.hosts = append(v.hosts, wholeName(host, namespace))
	}
	slices.Sort(v.hosts)
	v.hosts = slices.Compact(v.hosts)
	for d := range destinations(spec) {
		v.leadsTo = append(v.leadsTo, wholeName(d.GetHost(), namespace))
	}
	for _, h := range spec.GetHttp() {
		if to := delegateOf(h.GetDelegate(), namespace); to != "" {
			v.leadsTo = append(v.leadsTo, delegatePrefix+to)
		}
	}
	gateways := gatewaysOf(spec.GetGateways(), namespace)
	for _, name := range gateways {
		v.leadsTo = append(v.leadsTo, gatewayPrefix+name)
	}
	if len(gateways) > 0 && len(spec.GetTls())+len(spec.GetTcp()) > 0 {
		v.hosts = append(v.hosts, gatewayUnit) // whose listeners it has a part in
	}
	slices.Sort(v.leadsTo)
	v.leadsTo = slices.Compact(v.leadsTo)
	return v
}

// destinations yields all destinations of a VirtualService.
func destinations(spec *networking.VirtualService) iter.Seq[*networking.Destination] {
	return func(yield func(*networking.Destination) bool) {
		for _, h := range spec.GetHttp() {
			for _, r := range h.GetRoute() {
				if !yield(r.GetDestination()) {
					return
				}
			}
			for _, m := range h.GetMirrors() {
				if !yield(m.GetDestination()) {
					return
				}
			}
			if h.GetMirror() != nil && !yield(h.GetMirror()) {
				return
			}
		}
		var connections []*networking.RouteDestination
		for _, r := range spec.GetTls() {
			connections = append(connections, r.GetRoute()...)
		}
		for _, r := range spec.GetTcp() {
			connections = append(connections, r.GetRoute()...)
		}
		for _, r := range connections {
			if r.GetDestination() != nil && !yield(r.GetDestination()) {
				return
			}
		}
	}
}
