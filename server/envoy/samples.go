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

// Served has the resources of a sort of clients.
type Served struct {
	Resources []proto.Message // clusters, endpoints, listeners and routes

	scope *workloadView
}

// ServedOf returns the resources for the sorts of clients that Findings lists. It leaves out clients that add no new
// resource.
func ServedOf(view memstore.Reader) (served []Served, err error) {
	_, scopes, err := translateAll(view)
	if err != nil {
		return nil, err
	}
	seen := make(map[string]bool)
	for _, scope := range scopes {
		sample := Served{scope: scope}
		before := len(seen)
		for _, collection := range []*xds.Collection{
			sample.scope.clusters, sample.scope.endpoints, sample.scope.listeners, sample.scope.routes,
		} {
			for entry := range collection.All() {
				seen[string(entry.Any)] = true
				var body anypb.Any
				if err := proto.Unmarshal(entry.Any, &body); err != nil {
					return nil, fmt.Errorf("%s: %w", entry.Name, err)
				}
				message, err := body.UnmarshalNew()
				if err != nil {
					return nil, fmt.Errorf("%s: %w", entry.Name, err)
				}
				sample.Resources = append(sample.Resources, message)
			}
		}
		if len(seen) > before {
			served = append(served, sample)
		}
	}
	return served, nil
}

// Objects returns the objects behind a resource, in order. The resource may be a RouteConfiguration with some of its
// virtual hosts.
func (s Served) Objects(message proto.Message) []resource.Key {
	objects := make(map[resource.Key]bool)
	switch typed := message.(type) {
	case *routev3.RouteConfiguration:
		for _, virtualHost := range typed.GetVirtualHosts() {
			for _, domain := range virtualHost.GetDomains() {
				maps.Copy(objects, s.scope.objectsOf(s.scope.virtualHosts, typed.GetName()+"/"+domain))
			}
		}
		if len(objects) == 0 { // for all domains
			objects = s.scope.objectsOf(s.scope.routes, typed.GetName())
		}
	case *listenerv3.Listener:
		objects = s.scope.objectsOf(s.scope.listeners, typed.GetName())
	case interface{ GetName() string }:
		objects = s.scope.objectsOf(s.scope.clusters, typed.GetName())
	}
	return slices.SortedFunc(maps.Keys(objects), resource.Key.Compare)
}
