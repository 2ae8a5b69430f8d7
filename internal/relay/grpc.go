package relay

import (
	"math"
	"time"

	"google.golang.org/grpc"
	channelz "google.golang.org/grpc/channelz/service"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"tributary/server/mcp"
	"tributary/server/xds"
)

// newGRPC makes the gRPC server. Besides xDS it has what grpcurl, grpcdebug and load balancers look for.
func newGRPC(engine *xds.Server, creds credentials.TransportCredentials, hops *mcp.Hops, h *health.Server) *grpc.Server {
	s := grpc.NewServer(append(engine.ServerOptions(),
		grpc.Creds(engine.Credentials(creds)),
		grpc.ConnectionTimeout(10*time.Second), // for the handshakes
		grpc.MaxConcurrentStreams(math.MaxUint32),
		// istiod pings every 30 s, also while it is idle; gRPC's defaults would end its connection for that.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.ChainStreamInterceptor(hops.Intercept),
	)...)
	engine.Register(s)
	healthpb.RegisterHealthServer(s, h)
	h.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	channelz.RegisterChannelzServiceToServer(s)
	reflection.Register(s) // both v1 and v1alpha
	return s
}
