package adsc

import (
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

// partialTypes are those whose state-of-the-world responses may leave out what has not changed. Of all others absence
// means deletion (xds_protocol.rst, "How the client specifies what resources to return").
var partialTypes = map[string]bool{
	EndpointType: true,
	RouteType:    true,
	"type.googleapis.com/envoy.config.route.v3.VirtualHost":                true,
	"type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig":        true,
	"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret": true,
	"type.googleapis.com/envoy.service.runtime.v3.Runtime":                 true,
}

// parentOf returns the type whose resources refer to those of typeURL, or nothing.
func parentOf(typeURL string) string {
	switch typeURL {
	case EndpointType:
		return ClusterType
	case RouteType:
		return ListenerType
	}
	return ""
}

// childrenOf returns the type that a type refers to, and how to find out what a resource of it refers to. What cannot be
// decoded refers to nothing.
func childrenOf(typeURL string) (child string, refers func(*anypb.Any) (name string, children []string)) {
	switch typeURL {
	case ClusterType:
		return EndpointType, endpointsOf
	case ListenerType:
		return RouteType, routesOf
	}
	return "", nil
}

// References returns the names that a resource has the client ask for: a listener those of its routes, a cluster that of its
// endpoints.
func References(a *anypb.Any) []string {
	_, refers := childrenOf(a.GetTypeUrl())
	if refers == nil {
		return nil
	}
	_, names := refers(a)
	return names
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
