package relay

import (
	"encoding/json"
	"os"
	"time"

	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc"
	channelz "google.golang.org/grpc/channelz/service"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"tributary/config"
	"tributary/internal/intake"
	"tributary/resource"
	"tributary/server/access"
	"tributary/server/debug"
	"tributary/server/mcp"
	"tributary/server/transport"
	"tributary/server/xds"
)

// limits returns the limits of the configuration for the engine.
func limits(limits config.Limits) xds.Limits {
	return xds.Limits{
		StartingStreams: limits.StartingStreams, TypesPerStream: limits.TypesPerStream, NamesPerStream: limits.NamesPerStream,
		Names: limits.Names,
	}
}

// validation returns the validation of sources' objects, with the limit of their products.
func validation(productBytes int64) func(*resource.Resource) (resource.Errors, error) {
	return func(object *resource.Resource) (resource.Errors, error) {
		if err := resource.CheckProducts(object, productBytes); err != nil {
			return nil, err
		}
		return resource.Validate(object)
	}
}

// intakeLimits returns the limits of the configuration for the sources.
func intakeLimits(l config.Limits) intake.Limits {
	return intake.Limits{Answer: l.AnswerBytes, Memory: l.AnswerMemory, Objects: l.ObjectBytes}
}

// portLimits returns the limits of the configuration for the port.
func portLimits(limits config.Limits) transport.Limits {
	return transport.Limits{
		Streams: limits.Streams, StreamsPerPeer: limits.StreamsPerPeer, RequestBytes: limits.RequestBytes,
		RequestMemory:        limits.RequestMemory,
		RefusalDelay:         time.Duration(limits.RefusalDelay),
		StreamsPerConnection: limits.StreamsPerConnection, StreamsPerSecond: float64(limits.StreamsPerSecond),
		HeaderBytes: limits.HeaderBytes, HandshakeTimeout: time.Duration(limits.HandshakeTimeout),
		IdleConnection: time.Duration(limits.IdleConnection), ConnectionAge: time.Duration(limits.ConnectionAge),
	}
}

func debounce(d config.Debounce) xds.Debounce {
	return xds.Debounce{Quiet: time.Duration(d.Quiet), Max: time.Duration(d.Max)}
}

// pacing returns the pacing of the configuration for the engine. The configuration writes 0 for no pacing, and the
// engine -1.
func pacing(pacing config.Pacing) xds.Pacing {
	least := time.Duration(0) // the default
	if pacing.Least != nil {
		least = time.Duration(*pacing.Least)
		if least == 0 {
			least = -1 // no pacing
		}
	}
	return xds.Pacing{Least: least, Most: time.Duration(pacing.Most)}
}

// identifier names this server in every response, in the form that istioctl reads (istio.io/istio/pilot/pkg/xds,
// IstioControlPlaneInstance, as of 1.27).
func identifier(version string) string {
	host, _ := os.Hostname() // without a host name, the ID is empty
	type info struct {
		Version string `json:"version"`
	}
	text, err := json.Marshal(struct {
		Component string
		ID        string
		Info      info
	}{"tributary", host, info{version}})
	if err != nil {
		return "tributary"
	}
	return string(text)
}

// newGRPC makes the gRPC server, with xDS and the services for grpcurl, grpcdebug and load balancers.
func newGRPC(engine *xds.Server, limiter *transport.Limiter, creds credentials.TransportCredentials,
	admission *access.Admission, hops *mcp.Hops, healthServer *health.Server,
) *grpc.Server {
	server := grpc.NewServer(append(append(engine.ServerOptions(), limiter.ServerOptions(creds)...),
		// istiod pings every 30 s, also while it is idle; gRPC's defaults would end its connection for that.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.ChainStreamInterceptor(admission.Stream, hops.Intercept),
		grpc.ChainUnaryInterceptor(admission.Unary),
	)...)
	engine.Register(server)
	healthpb.RegisterHealthServer(server, programHealth{healthServer})
	healthServer.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	debug.NewCSDS(engine).Register(server)
	channelz.RegisterChannelzServiceToServer(server)
	reflection.Register(server) // both v1 and v1alpha
	return server
}

// programHealth serves the health of the whole program, which has the empty name in the protocol.
type programHealth struct{ *health.Server }

// Watch refuses other names. A health.Server would store each of them, and let its client wait for a service of that
// name.
func (h programHealth) Watch(request *healthpb.HealthCheckRequest, stream healthpb.Health_WatchServer) error {
	if request.GetService() != "" {
		return status.Error(codes.NotFound, "unknown service: ask for the empty name, which is the whole program")
	}
	return h.Server.Watch(request, stream)
}

// adminRequestBytes is twice the limit of package debug for a request to CSDS; all other requests are smaller.
const adminRequestBytes = 64 << 10

// newAdminGRPC makes the gRPC server behind the admin port, which shows tools the state of this program as a client of
// other servers. Its streams count toward the limits of limiter.
func newAdminGRPC(
	limiter *transport.Limiter, upstreams func() []*statusv3.ClientConfig, healthServer *health.Server,
) *grpc.Server {
	unknown := func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		return status.Errorf(codes.Unimplemented,
			"%s is not served on the admin port of tributary: for xDS, ask the port of listen.xds", method)
	}
	server := grpc.NewServer(append(limiter.Interceptors(), grpc.MaxRecvMsgSize(adminRequestBytes),
		grpc.UnknownServiceHandler(unknown))...)
	debug.NewUpstreamCSDS(upstreams).Register(server)
	healthpb.RegisterHealthServer(server, programHealth{healthServer})
	channelz.RegisterChannelzServiceToServer(server)
	reflection.Register(server)
	return server
}
