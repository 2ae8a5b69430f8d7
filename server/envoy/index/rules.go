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

// rules indexes the DestinationRules or VirtualServices by their hosts.
type rules[T any] struct {
	ByKey         map[resource.Key]*model.Rule[T]
	exact         map[string][]*model.Rule[T] // the oldest first, as in the other lists
	wildcards     map[string][]*model.Rule[T]
	byDestination map[string][]*model.Rule[T] // by the hosts of their destinations

	lengths      []int // of the wildcards, the longest first
	lengthCounts map[int]int
}

func newRules[T any]() *rules[T] {
	return &rules[T]{
		ByKey: make(map[resource.Key]*model.Rule[T]), exact: make(map[string][]*model.Rule[T]),
		wildcards: make(map[string][]*model.Rule[T]), byDestination: make(map[string][]*model.Rule[T]),
		lengthCounts: make(map[int]int),
	}
}

// set replaces the rule of a key, or removes it if the new one is nil. It returns the hosts of the old and the new
// rule.
func (rs *rules[T]) set(key resource.Key, rule *model.Rule[T]) (hosts []string) {
	if old := rs.ByKey[key]; old != nil {
		hosts = append(hosts, old.Hosts...)
		rs.editLists(old, func(list []*model.Rule[T]) []*model.Rule[T] {
			return slices.DeleteFunc(slices.Clone(list), func(rule *model.Rule[T]) bool { return rule == old })
		})
		delete(rs.ByKey, key)
	}
	if rule == nil {
		return hosts
	}
	rs.ByKey[key] = rule
	rs.editLists(rule, func(list []*model.Rule[T]) []*model.Rule[T] {
		i, _ := slices.BinarySearchFunc(list, rule, model.OlderRule)
		return slices.Insert(slices.Clone(list), i, rule)
	})
	return append(hosts, rule.Hosts...)
}

// editLists edits each list that a rule belongs to.
func (rs *rules[T]) editLists(rule *model.Rule[T], edit func([]*model.Rule[T]) []*model.Rule[T]) {
	editList := func(lists map[string][]*model.Rule[T], host string) {
		lists[host] = edit(lists[host])
		if len(lists[host]) == 0 {
			delete(lists, host)
		}
	}
	for _, host := range rule.Hosts {
		if model.IsWildcard(host) {
			before := len(rs.wildcards)
			editList(rs.wildcards, host)
			rs.count(len(host), len(rs.wildcards)-before)
		} else {
			editList(rs.exact, host)
		}
	}
	for _, host := range rule.DependsOn {
		editList(rs.byDestination, host)
	}
}

// count adds to the number of wildcards of a length.
func (rs *rules[T]) count(length, delta int) {
	if delta == 0 {
		return
	}
	rs.lengthCounts[length] += delta
	if rs.lengthCounts[length] == 0 {
		delete(rs.lengthCounts, length)
	}
	rs.lengths = slices.SortedFunc(maps.Keys(rs.lengthCounts), func(a, b int) int { return b - a })
}

// forHost yields the rules for a host: those that name it, then those of matching wildcards, the longest first. Rules
// with the same host come in order of age, the oldest first.
func (rs *rules[T]) forHost(host string) iter.Seq2[string, *model.Rule[T]] {
	return func(yield func(string, *model.Rule[T]) bool) {
		for _, rule := range rs.exact[host] {
			if !yield(host, rule) {
				return
			}
		}
		ending := strings.TrimPrefix(host, "*")
		for _, length := range rs.lengths {
			if length > 1+len(ending) {
				continue
			}
			wildcard := "*" + ending[len(ending)+1-length:]
			for _, rule := range rs.wildcards[wildcard] {
				if !yield(wildcard, rule) {
					return
				}
			}
		}
	}
}

func newDestinationRule(object *resource.Resource, spec *networking.DestinationRule) *model.DestinationRule {
	if spec == nil {
		return nil
	}
	return &model.DestinationRule{
		Key: object.Key(), Created: object.Created(), Version: object.Version(), Spec: spec,
		Hosts: []string{model.WholeName(spec.GetHost(), object.Key().Namespace)}, ExportTo: spec.GetExportTo(),
	}
}

func newVirtualService(object *resource.Resource, spec *networking.VirtualService) *model.VirtualService {
	if spec == nil {
		return nil
	}
	namespace := object.Key().Namespace
	created := &model.VirtualService{
		Key: object.Key(), Created: object.Created(), Version: object.Version(), Spec: spec,
		ExportTo: spec.GetExportTo(), Derived: model.Derived(object.Annotations()[resource.RouteSemantics]),
		Uniform: !model.DependsOnClient(spec),
	}
	for _, host := range spec.GetHosts() {
		created.Hosts = append(created.Hosts, created.WholeName(host))
	}
	slices.Sort(created.Hosts)
	created.Hosts = slices.Compact(created.Hosts)
	for _, destination := range destinations(spec) {
		created.DependsOn = append(created.DependsOn, created.WholeName(destination.GetHost()))
	}
	for _, route := range spec.GetHttp() {
		if delegate := route.GetDelegate(); delegate != nil {
			created.DependsOn = append(created.DependsOn, delegatePrefix+resource.DelegateKey(delegate, namespace).FullName())
		}
	}
	gateways := created.WholeGateways(spec.GetGateways())
	for _, name := range gateways {
		created.DependsOn = append(created.DependsOn, model.GatewayPrefix+name)
	}
	if len(gateways) > 0 && len(spec.GetTls())+len(spec.GetTcp()) > 0 {
		created.Hosts = append(created.Hosts, model.GatewayPseudoHost) // it has a part in the listeners
	}
	slices.Sort(created.DependsOn)
	created.DependsOn = slices.Compact(created.DependsOn)
	return created
}

// destinations returns all destinations of a VirtualService.
func destinations(spec *networking.VirtualService) (list []*networking.Destination) {
	for _, route := range spec.GetHttp() {
		for _, r := range route.GetRoute() {
			list = append(list, r.GetDestination())
		}
		for _, m := range route.GetMirrors() {
			list = append(list, m.GetDestination())
		}
		list = append(list, route.GetMirror())
	}
	var connections []*networking.RouteDestination
	for _, r := range spec.GetTls() {
		connections = append(connections, r.GetRoute()...)
	}
	for _, r := range spec.GetTcp() {
		connections = append(connections, r.GetRoute()...)
	}
	for _, r := range connections {
		list = append(list, r.GetDestination())
	}
	return slices.DeleteFunc(list, func(d *networking.Destination) bool { return d == nil })
}
