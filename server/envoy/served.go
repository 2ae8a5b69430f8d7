package envoy

import (
	"fmt"
	"maps"
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/xds"
)

// Served is what clients of one sort are served.
type Served struct {
	Resources []proto.Message // clusters, endpoints, listeners and routes

	scope *variant
}

// ServedOf returns the resources for clients of all sorts, as Findings has them. It leaves out clients whose resources earlier
// ones have, too.
func ServedOf(view memstore.Reader) (all []Served, err error) {
	_, scopes, err := translateAll(view)
	if err != nil {
		return nil, err
	}
	seen := make(map[string]bool)
	for _, scope := range scopes {
		s := Served{scope: scope}
		before := len(seen)
		for _, coll := range []*xds.Collection{s.scope.clusters, s.scope.endpoints, s.scope.listeners, s.scope.routes} {
			for e := range coll.All() {
				seen[string(e.Any)] = true
				var body anypb.Any
				if err := proto.Unmarshal(e.Any, &body); err != nil {
					return nil, fmt.Errorf("%s: %w", e.Name, err)
				}
				m, err := body.UnmarshalNew()
				if err != nil {
					return nil, fmt.Errorf("%s: %w", e.Name, err)
				}
				s.Resources = append(s.Resources, m)
			}
		}
		if len(seen) > before {
			all = append(all, s)
		}
	}
	return all, nil
}

// Objects returns the objects that a resource is made of, in order. m may be a RouteConfiguration with some of its virtual hosts.
func (s Served) Objects(m proto.Message) []resource.Key {
	all := make(map[resource.Key]bool)
	switch m := m.(type) {
	case *routev3.RouteConfiguration:
		for _, v := range m.GetVirtualHosts() {
			for _, d := range v.GetDomains() {
				maps.Copy(all, s.scope.objectsOf(s.scope.virtualHosts, m.GetName()+"/"+d))
			}
		}
		if len(all) == 0 { // it is for all domains
			all = s.scope.objectsOf(s.scope.routes, m.GetName())
		}
	case *listenerv3.Listener:
		all = s.scope.objectsOf(s.scope.listeners, m.GetName())
	case interface{ GetName() string }:
		all = s.scope.objectsOf(s.scope.clusters, m.GetName())
	}
	return slices.SortedFunc(maps.Keys(all), resource.Key.Compare)
}
