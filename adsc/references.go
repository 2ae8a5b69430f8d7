package adsc

import (
	"cmp"

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

// A state-of-the-world response of the partialTypes may leave out unchanged resources. For all other types, absence
// means deletion (xds_protocol.rst, "How the client specifies what resources to return").
var partialTypes = map[string]bool{
	EndpointType: true,
	RouteType:    true,
	"type.googleapis.com/envoy.config.route.v3.VirtualHost":                true,
	"type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig":        true,
	"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret": true,
	"type.googleapis.com/envoy.service.runtime.v3.Runtime":                 true,
}

// References returns the names that a resource refers to: the routes of a listener, the endpoints of a cluster. An
// undecodable resource has none.
func References(body *anypb.Any) []string {
	switch body.GetTypeUrl() {
	case ClusterType:
		return edsNames(body)
	case ListenerType:
		return rdsNames(body)
	}
	return nil
}

// edsNames returns the name under which a cluster subscribes to its endpoints; none for a cluster without EDS.
func edsNames(body *anypb.Any) []string {
	var cluster clusterv3.Cluster
	if body.UnmarshalTo(&cluster) != nil || cluster.GetType() != clusterv3.Cluster_EDS {
		return nil
	}
	if name := cmp.Or(cluster.GetEdsClusterConfig().GetServiceName(), cluster.GetName()); name != "" {
		return []string{name}
	}
	return nil // a broken cluster: its name must not spoil the subscription to the others
}

// rdsNames returns the names under which the connection managers of a listener subscribe to routes.
func rdsNames(body *anypb.Any) (routes []string) {
	var listener listenerv3.Listener
	if body.UnmarshalTo(&listener) != nil {
		return nil
	}
	managers := []*anypb.Any{listener.GetApiListener().GetApiListener()}
	chains := listener.GetFilterChains()
	if listener.GetDefaultFilterChain() != nil {
		chains = append(chains, listener.GetDefaultFilterChain())
	}
	for _, chain := range chains {
		for _, filter := range chain.GetFilters() {
			managers = append(managers, filter.GetTypedConfig())
		}
	}
	for _, config := range managers {
		var manager hcmv3.HttpConnectionManager
		if config.MessageIs(&manager) && config.UnmarshalTo(&manager) == nil {
			if route := manager.GetRds().GetRouteConfigName(); route != "" {
				routes = append(routes, route)
			}
		}
	}
	return routes
}
