package xds

import (
	"google.golang.org/grpc"

	// The descriptors of the services, for reflection.
	_ "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/extension/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
)

// services are the discovery services of the protocol: the aggregated one, and one for each Envoy type. The unary Fetch
// methods are not served.
var services = []struct {
	name, file  string
	sotw, delta string // method names
	typeURL     string // empty: any
}{
	{"envoy.service.discovery.v3.AggregatedDiscoveryService", "discovery/v3/ads", "StreamAggregatedResources", "DeltaAggregatedResources", ""},
	{"envoy.service.cluster.v3.ClusterDiscoveryService", "cluster/v3/cds", "StreamClusters", "DeltaClusters", ClusterURL},
	{"envoy.service.endpoint.v3.EndpointDiscoveryService", "endpoint/v3/eds", "StreamEndpoints", "DeltaEndpoints", EndpointURL},
	{"envoy.service.listener.v3.ListenerDiscoveryService", "listener/v3/lds", "StreamListeners", "DeltaListeners", ListenerURL},
	{"envoy.service.route.v3.RouteDiscoveryService", "route/v3/rds", "StreamRoutes", "DeltaRoutes", RouteURL},
	{"envoy.service.route.v3.ScopedRoutesDiscoveryService", "route/v3/srds", "StreamScopedRoutes", "DeltaScopedRoutes", ScopedURL},
	{"envoy.service.route.v3.VirtualHostDiscoveryService", "route/v3/rds", "", "DeltaVirtualHosts", VHostURL},
	{"envoy.service.secret.v3.SecretDiscoveryService", "secret/v3/sds", "StreamSecrets", "DeltaSecrets", SecretURL},
	{"envoy.service.runtime.v3.RuntimeDiscoveryService", "runtime/v3/rtds", "StreamRuntime", "DeltaRuntime", RuntimeURL},
	{
		"envoy.service.extension.v3.ExtensionConfigDiscoveryService", "extension/v3/config_discovery", "StreamExtensionConfigs",
		"DeltaExtensionConfigs", ExtURL,
	},
}

// Register adds the discovery services to a gRPC server.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	for _, svc := range services {
		desc := &grpc.ServiceDesc{ServiceName: svc.name, HandlerType: (*any)(nil), Metadata: "envoy/service/" + svc.file + ".proto"}
		method := func(name string, delta bool) {
			if name == "" {
				return
			}
			desc.Streams = append(desc.Streams, grpc.StreamDesc{
				StreamName: name, ServerStreams: true, ClientStreams: true,
				Handler: func(_ any, ss grpc.ServerStream) error { return s.serve(ss, delta, svc.typeURL) },
			})
		}
		method(svc.sotw, false)
		method(svc.delta, true)
		r.RegisterService(desc, s)
	}
}
