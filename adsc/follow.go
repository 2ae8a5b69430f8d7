package adsc

import (
	"maps"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// The type URLs of Envoy's resources that refer to each other.
const (
	ClusterType  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	EndpointType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	ListenerType = "type.googleapis.com/envoy.config.listener.v3.Listener"
	RouteType    = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
)

// partialTypes are the types whose state-of-the-world responses may leave out unchanged resources. For all other types,
// absence means deletion (xds_protocol.rst, "How the client specifies what resources to return").
var partialTypes = map[string]bool{
	EndpointType: true,
	RouteType:    true,
	"type.googleapis.com/envoy.config.route.v3.VirtualHost":                true,
	"type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig":        true,
	"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret": true,
	"type.googleapis.com/envoy.service.runtime.v3.Runtime":                 true,
}

// parentOf returns the type of the resources that refer to resources of typeURL; empty without one.
func parentOf(typeURL string) string {
	switch typeURL {
	case EndpointType:
		return ClusterType
	case RouteType:
		return ListenerType
	}
	return ""
}

// childrenOf returns the type that a type refers to, and the function that returns the references of a resource.
// Undecodable resources have none.
func childrenOf(typeURL string) (child string, refers func(*anypb.Any) (name string, children []string)) {
	switch typeURL {
	case ClusterType:
		return EndpointType, endpointsOf
	case ListenerType:
		return RouteType, routesOf
	}
	return "", nil
}

// References returns the names that a resource refers to: the routes of a listener, the endpoints of a cluster.
func References(a *anypb.Any) []string {
	_, refers := childrenOf(a.GetTypeUrl())
	if refers == nil {
		return nil
	}
	_, names := refers(a)
	return names
}

// references are the names that the resources in force of a type refer to.
type references struct {
	inForce map[string][]string // by resource; nil if they are unknown
	// previous has the references before an unfinished complete set. The end of the set removes the resources that it
	// lacks.
	previous map[string][]string
}

// update applies a response with the resources of these names. first says that it begins a complete set.
func (rf *references) update(r *Response, first bool, names []string, rejected rejection) {
	switch {
	case first:
		previous := rf.current()
		rf.inForce, rf.previous = make(map[string][]string, len(names)), previous
	case rf.inForce == nil:
		return // the references of earlier resources are unknown
	}
	if rejected.entire { // all earlier resources stay
		rf.inForce, rf.previous = rf.current(), nil
		return
	}
	_, refers := childrenOf(r.TypeURL)
	for i, name := range names {
		if old, exists := rf.previous[name]; rejected.includes(name) {
			if exists {
				rf.inForce[name] = old
			}
			continue
		}
		_, rf.inForce[name] = refers(r.Resources[i].Body)
	}
	for _, name := range r.Removed {
		delete(rf.inForce, name)
		delete(rf.previous, name)
	}
	if !r.More {
		rf.previous = nil
	}
}

func (rf *references) current() map[string][]string {
	merged := make(map[string][]string, len(rf.inForce))
	maps.Copy(merged, rf.previous)
	maps.Copy(merged, rf.inForce)
	return merged
}

// selection returns all names that are referred to.
func (rf *references) selection() selection {
	var names []string
	for _, children := range rf.current() {
		names = append(names, children...)
	}
	return selectNames(names)
}

// follower returns the subscription that follows a type, or nil. The caller holds mu.
func (c *Client) follower(typeURL string) *subscription {
	child, _ := childrenOf(typeURL)
	if follower := c.find(child); follower != nil && follower.follow {
		return follower
	}
	return nil
}

// isUnresolved reports whether another type follows this one, but the references of its resources are unknown: they
// came before that type was subscribed to, or the caller has them from elsewhere. The caller holds mu.
func (c *Client) isUnresolved(sub *subscription) bool {
	return sub.references.inForce == nil && c.follower(sub.typeURL) != nil
}

// endpointsOf returns the name of a cluster and that of its endpoints, if it has them from EDS.
func endpointsOf(a *anypb.Any) (name string, children []string) {
	var c clusterv3.Cluster
	if a.UnmarshalTo(&c) != nil {
		return "", nil
	}
	if c.GetType() != clusterv3.Cluster_EDS {
		return c.GetName(), nil
	}
	if service := c.GetEdsClusterConfig().GetServiceName(); service != "" {
		return c.GetName(), []string{service}
	}
	return c.GetName(), []string{c.GetName()}
}

// routesOf returns the name of a listener and those of the routes that its connection managers have from RDS.
func routesOf(a *anypb.Any) (name string, children []string) {
	var l listenerv3.Listener
	if a.UnmarshalTo(&l) != nil {
		return "", nil
	}
	managers := []*anypb.Any{l.GetApiListener().GetApiListener()}
	chains := l.GetFilterChains()
	if l.GetDefaultFilterChain() != nil {
		chains = append(chains, l.GetDefaultFilterChain())
	}
	for _, chain := range chains {
		for _, filter := range chain.GetFilters() {
			managers = append(managers, filter.GetTypedConfig())
		}
	}
	for _, config := range managers {
		var m hcmv3.HttpConnectionManager
		if config.MessageIs(&m) && config.UnmarshalTo(&m) == nil {
			if route := m.GetRds().GetRouteConfigName(); route != "" {
				children = append(children, route)
			}
		}
	}
	return l.GetName(), children
}
