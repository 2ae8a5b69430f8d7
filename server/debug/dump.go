package debug

import (
	"strings"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
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

// Dump returns what a client is served of Envoy's types, in the form of an Envoy's config_dump. Endpoints are left out unless they are
// asked for, as Envoy does it. Virtual hosts that are asked for one by one stand in their routes. Of secrets there are names and versions.
func Dump(served []xds.Served, endpoints bool) (*adminv3.ConfigDump, error) {
	clusters, listeners, routes := &adminv3.ClustersConfigDump{}, &adminv3.ListenersConfigDump{}, &adminv3.RoutesConfigDump{}
	members, ecds, secrets := &adminv3.EndpointsConfigDump{}, &adminv3.EcdsConfigDump{}, &adminv3.SecretsConfigDump{}
	hosts, err := virtualHosts(served)
	if err != nil {
		return nil, err
	}
	for _, of := range served {
		for _, e := range of.Entries {
			body := &anypb.Any{}
			if err := proto.Unmarshal(e.Any, body); err != nil {
				return nil, err
			}
			switch of.TypeURL {
			case xds.ClusterURL:
				clusters.VersionInfo = of.Version
				clusters.DynamicActiveClusters = append(clusters.DynamicActiveClusters,
					&adminv3.ClustersConfigDump_DynamicCluster{VersionInfo: e.Version, Cluster: body})
			case xds.ListenerURL:
				listeners.VersionInfo = of.Version
				listeners.DynamicListeners = append(listeners.DynamicListeners, &adminv3.ListenersConfigDump_DynamicListener{
					Name: e.Name, ActiveState: &adminv3.ListenersConfigDump_DynamicListenerState{VersionInfo: e.Version, Listener: body},
				})
			case xds.RouteURL:
				if body, err = withHosts(body, hosts[e.Name]); err != nil {
					return nil, err
				}
				routes.DynamicRouteConfigs = append(routes.DynamicRouteConfigs,
					&adminv3.RoutesConfigDump_DynamicRouteConfig{VersionInfo: e.Version, RouteConfig: body})
			case xds.EndpointURL:
				members.DynamicEndpointConfigs = append(members.DynamicEndpointConfigs,
					&adminv3.EndpointsConfigDump_DynamicEndpointConfig{VersionInfo: e.Version, EndpointConfig: body})
			case xds.SecretURL:
				secrets.DynamicActiveSecrets = append(secrets.DynamicActiveSecrets,
					&adminv3.SecretsConfigDump_DynamicSecret{Name: e.Name, VersionInfo: e.Version})
			case xds.ExtURL:
				ecds.EcdsFilters = append(ecds.EcdsFilters, &adminv3.EcdsConfigDump_EcdsFilterConfig{VersionInfo: e.Version, EcdsFilter: body})
			}
		}
	}
	parts := []proto.Message{&adminv3.BootstrapConfigDump{}, clusters, listeners, &adminv3.ScopedRoutesConfigDump{}, routes, secrets, ecds}
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

// virtualHosts returns those that are served one by one, by the name of their routes.
func virtualHosts(served []xds.Served) (map[string][]*routev3.VirtualHost, error) {
	all := make(map[string][]*routev3.VirtualHost)
	for _, of := range served {
		if of.TypeURL != xds.VHostURL {
			continue
		}
		for _, e := range of.Entries {
			body, host := &anypb.Any{}, &routev3.VirtualHost{}
			if err := proto.Unmarshal(e.Any, body); err != nil {
				return nil, err
			}
			if err := body.UnmarshalTo(host); err != nil {
				return nil, err
			}
			route, _, _ := strings.Cut(e.Name, "/") // so VHDS has them named
			all[route] = append(all[route], host)
		}
	}
	return all, nil
}

// withHosts adds virtual hosts to encoded routes.
func withHosts(body *anypb.Any, hosts []*routev3.VirtualHost) (*anypb.Any, error) {
	if len(hosts) == 0 {
		return body, nil
	}
	routes := &routev3.RouteConfiguration{}
	if err := body.UnmarshalTo(routes); err != nil {
		return nil, err
	}
	routes.VirtualHosts = append(routes.VirtualHosts, hosts...)
	return anypb.New(routes)
}

// Clusters returns the endpoints that a client is served, in the form of an Envoy's /clusters?format=json, which istioctl proxy-config
// endpoint reads.
func Clusters(served []xds.Served) (*adminv3.Clusters, error) {
	all := &adminv3.Clusters{}
	for _, of := range served {
		if of.TypeURL != xds.EndpointURL {
			continue
		}
		for _, e := range of.Entries {
			body, members := &anypb.Any{}, &endpointv3.ClusterLoadAssignment{}
			if err := proto.Unmarshal(e.Any, body); err != nil {
				return nil, err
			}
			if err := body.UnmarshalTo(members); err != nil {
				return nil, err
			}
			all.ClusterStatuses = append(all.ClusterStatuses, &adminv3.ClusterStatus{
				Name: members.GetClusterName(), AddedViaApi: true,
				HostStatuses: hosts(members),
			})
		}
	}
	return all, nil
}

func hosts(members *endpointv3.ClusterLoadAssignment) (all []*adminv3.HostStatus) {
	for _, l := range members.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			health := e.GetHealthStatus()
			if health == corev3.HealthStatus_UNKNOWN {
				health = corev3.HealthStatus_HEALTHY // so Envoy takes it
			}
			all = append(all, &adminv3.HostStatus{
				Address: e.GetEndpoint().GetAddress(), HealthStatus: &adminv3.HostHealthStatus{EdsHealthStatus: health},
				Weight: max(e.GetLoadBalancingWeight().GetValue(), 1), Locality: l.GetLocality(), Priority: l.GetPriority(),
			})
		}
	}
	return all
}
