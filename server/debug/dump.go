package debug

import (
	"strings"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"tributary/server/xds"
)

// Connection names a stream as istiod does.
func Connection(c *xds.ClientStatus) string { return c.Node.GetId() + "-" + streamID(c.StreamID) }

// Find returns the client that is meant by id, as istiod finds it: by a part of the name of its connection.
func Find(clients Clients, id string) (c xds.ClientStatus, ok bool) {
	for c := range Who(clients) {
		if id != "" && strings.Contains(Connection(&c), id) {
			return c, true
		}
	}
	return xds.ClientStatus{}, false
}

// Dump returns what the client of a stream was sent of Envoy's types, in the form of an Envoy's config_dump. Endpoints are left out
// unless they are asked for, as Envoy does it. There are no secrets in it: tributary serves none.
func Dump(clients Clients, streamID uint64, endpoints bool) (*adminv3.ConfigDump, error) {
	clusters, listeners, routes := &adminv3.ClustersConfigDump{}, &adminv3.ListenersConfigDump{}, &adminv3.RoutesConfigDump{}
	members, ecds := &adminv3.EndpointsConfigDump{}, &adminv3.EcdsConfigDump{}
	for _, of := range clients.Served(streamID) {
		for _, e := range of.Entries {
			body := &anypb.Any{}
			if err := proto.Unmarshal(e.Any, body); err != nil {
				return nil, err
			}
			switch of.TypeURL {
			case xds.ClusterURL:
				clusters.VersionInfo = of.Version
				clusters.DynamicActiveClusters = append(clusters.DynamicActiveClusters, &adminv3.ClustersConfigDump_DynamicCluster{VersionInfo: e.Version, Cluster: body})
			case xds.ListenerURL:
				listeners.VersionInfo = of.Version
				listeners.DynamicListeners = append(listeners.DynamicListeners, &adminv3.ListenersConfigDump_DynamicListener{
					Name: e.Name, ActiveState: &adminv3.ListenersConfigDump_DynamicListenerState{VersionInfo: e.Version, Listener: body},
				})
			case xds.RouteURL:
				routes.DynamicRouteConfigs = append(routes.DynamicRouteConfigs, &adminv3.RoutesConfigDump_DynamicRouteConfig{VersionInfo: e.Version, RouteConfig: body})
			case xds.EndpointURL:
				members.DynamicEndpointConfigs = append(members.DynamicEndpointConfigs, &adminv3.EndpointsConfigDump_DynamicEndpointConfig{VersionInfo: e.Version, EndpointConfig: body})
			case xds.ExtURL:
				ecds.EcdsFilters = append(ecds.EcdsFilters, &adminv3.EcdsConfigDump_EcdsFilterConfig{VersionInfo: e.Version, EcdsFilter: body})
			}
		}
	}
	parts := []proto.Message{&adminv3.BootstrapConfigDump{}, clusters, listeners, &adminv3.ScopedRoutesConfigDump{}, routes, &adminv3.SecretsConfigDump{}, ecds}
	if endpoints {
		parts = append(parts, members)
	}
	dump := &adminv3.ConfigDump{}
	for _, part := range parts {
		body, err := anypb.New(part)
		if err != nil {
			return nil, err
		}
		dump.Configs = append(dump.Configs, body)
	}
	return dump, nil
}
