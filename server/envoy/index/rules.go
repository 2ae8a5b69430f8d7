package index

import (
	"iter"
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/server/envoy/model"
)

// rules are the rules of a kind, indexed by their hosts.
type rules[T any] struct {
	ByKey map[resource.Key]*model.Rule[T]
	exact map[string][]*model.Rule[T] // the oldest first, as all lists of them
	wild  map[string][]*model.Rule[T]
	leads map[string][]*model.Rule[T] // by the hosts that they lead to

	lengths  []int // of the wildcards, the longest first
	ofLength map[int]int
}

func newRules[T any]() *rules[T] {
	return &rules[T]{
		ByKey: make(map[resource.Key]*model.Rule[T]), exact: make(map[string][]*model.Rule[T]),
		wild: make(map[string][]*model.Rule[T]), leads: make(map[string][]*model.Rule[T]), ofLength: make(map[int]int),
	}
}

// set replaces the rule of a key, or removes it if r is nil. It returns the hosts of the old and the new rule.
func (rs *rules[T]) set(key resource.Key, r *model.Rule[T]) (hosts []string) {
	if old := rs.ByKey[key]; old != nil {
		hosts = append(hosts, old.Hosts...)
		rs.eachList(old, func(list []*model.Rule[T]) []*model.Rule[T] {
			return slices.DeleteFunc(slices.Clone(list), func(r *model.Rule[T]) bool { return r == old })
		})
		delete(rs.ByKey, key)
	}
	if r == nil {
		return hosts
	}
	rs.ByKey[key] = r
	rs.eachList(r, func(list []*model.Rule[T]) []*model.Rule[T] {
		i, _ := slices.BinarySearchFunc(list, r, model.OlderRule)
		return slices.Insert(slices.Clone(list), i, r)
	})
	return append(hosts, r.Hosts...)
}

// eachList replaces each list of which r is, or will be, a member.
func (rs *rules[T]) eachList(r *model.Rule[T], with func([]*model.Rule[T]) []*model.Rule[T]) {
	in := func(lists map[string][]*model.Rule[T], host string) {
		if lists[host] = with(lists[host]); len(lists[host]) == 0 {
			delete(lists, host)
		}
	}
	for _, host := range r.Hosts {
		if model.IsWildcard(host) {
			had := len(rs.wild)
			in(rs.wild, host)
			rs.count(len(host), len(rs.wild)-had)
		} else {
			in(rs.exact, host)
		}
	}
	for _, host := range r.LeadsTo {
		in(rs.leads, host)
	}
}

// count adds to the number of wildcards of a length.
func (rs *rules[T]) count(length, more int) {
	if more == 0 {
		return
	}
	if rs.ofLength[length] += more; rs.ofLength[length] == 0 {
		delete(rs.ofLength, length)
	}
	rs.lengths = slices.SortedFunc(maps.Keys(rs.ofLength), func(a, b int) int { return b - a })
}

// forHost yields the rules for a host: those that name it, then those of matching wildcards, the longest first; each the oldest first.
func (rs *rules[T]) forHost(host string) iter.Seq2[string, *model.Rule[T]] {
	return func(yield func(string, *model.Rule[T]) bool) {
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

func destinationRule(r *resource.Resource, spec *networking.DestinationRule) *model.Rule[*networking.DestinationRule] {
	if spec == nil {
		return nil
	}
	return &model.Rule[*networking.DestinationRule]{
		Key: r.Key(), Created: r.Created(), Version: r.Version(), Spec: spec,
		Hosts: []string{model.WholeName(spec.GetHost(), r.Key().Namespace)}, ExportTo: spec.GetExportTo(),
	}
}

func virtualService(r *resource.Resource, spec *networking.VirtualService) *model.Rule[*networking.VirtualService] {
	if spec == nil {
		return nil
	}
	namespace := r.Key().Namespace
	v := &model.Rule[*networking.VirtualService]{
		Key: r.Key(), Created: r.Created(), Version: r.Version(), Spec: spec,
		ExportTo: spec.GetExportTo(), Derived: model.Derived(r.Annotations()[resource.RouteSemantics]),
		Uniform: !model.TellsApart(spec),
	}
	for _, host := range spec.GetHosts() {
		v.Hosts = append(v.Hosts, v.WholeName(host))
	}
	slices.Sort(v.Hosts)
	v.Hosts = slices.Compact(v.Hosts)
	for d := range destinations(spec) {
		v.LeadsTo = append(v.LeadsTo, v.WholeName(d.GetHost()))
	}
	for _, h := range spec.GetHttp() {
		if d := h.GetDelegate(); d != nil {
			v.LeadsTo = append(v.LeadsTo, delegatePrefix+resource.DelegateKey(d, namespace).FullName())
		}
	}
	gateways := model.GatewaysOf(spec.GetGateways(), namespace)
	for _, name := range gateways {
		v.LeadsTo = append(v.LeadsTo, model.GatewayPrefix+name)
	}
	if len(gateways) > 0 && len(spec.GetTls())+len(spec.GetTcp()) > 0 {
		v.Hosts = append(v.Hosts, model.GatewayUnit) // whose listeners it has a part in
	}
	slices.Sort(v.LeadsTo)
	v.LeadsTo = slices.Compact(v.LeadsTo)
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
