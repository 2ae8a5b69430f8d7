package xds

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	// The descriptors of the services, for reflection.
	_ "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/extension/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"tributary/internal/address"
)

// Catalog chooses the collections that clients see.
type Catalog interface {
	// Collection returns the collection that the client of node sees under typeURL, and a function, or nil, that the
	// server calls when the stream no longer uses the collection. An error, which should carry a gRPC status, ends the
	// stream. ErrNoAnswer leaves only the type without an answer, except on Review. The node must not be modified or kept.
	// Collection may block until ctx ends: only the stream waits for it.
	Collection(ctx context.Context, node *corev3.Node, typeURL string) (*Collection, func(), error)
}

// ErrNoAnswer is for a Catalog that does not serve a type, or not to this client: the client gets no answer for it, and
// its stream goes on, except on Review, which ends it. Most clients wait for some time for a type, and go on without
// it; istiod waits for ever.
var ErrNoAnswer = errors.New("there is no answer for this type")

// Options of a Server. The zero value is usable.
type Options struct {
	// Identifier is sent as control_plane.identifier with every response. Istio's tools expect JSON.
	Identifier string
	// Namespace comes before the names of the metrics: "tributary" makes them tributary_xds_….
	Namespace string
	// AckTimeout is how long an unacknowledged response holds back the next one of its type on the stream; changes
	// coalesce meanwhile. 10 s if zero.
	AckTimeout time.Duration
	Pacing     Pacing
	// Gzip compresses the responses to clients that accept it, once for all of them.
	Gzip       bool
	Log        *slog.Logger          // slog.Default if nil
	Registerer prometheus.Registerer // metrics are not exported if nil
	Limits     Limits
	// Identity, if not nil, is called when a stream begins, by many streams at once. It returns the identity that the
	// client has proven, for ClientStatus.
	Identity func(ctx context.Context) string
}

// Server serves a catalog to any number of streams.
type Server struct {
	// read-only
	catalog                   Catalog
	opts                      Options
	log                       *slog.Logger
	metrics                   *metrics
	sotwControl, deltaControl []byte // the encoded control plane fields

	startLimiter  startLimiter
	names         nameCosts
	logged        *rate.Limiter // of log lines that clients cause
	connectionLog *connectionLog
	receivers     sync.WaitGroup
	lastID        atomic.Uint64

	unsynced      sync.Map // *Collection → true: clients wait for its MarkSynced
	unsyncedAfter time.Duration

	closing chan struct{} // closed when draining begins

	mu       sync.Mutex
	streams  map[uint64]*stream // by id
	draining bool
}

// linesLogged bounds the logged refusals and rejections a second, and the logged connects and disconnects; metrics
// count all.
const linesLogged = 10

// NewServer returns a server of catalog. Register it with a gRPC server made with its ServerOptions.
func NewServer(catalog Catalog, opts Options) *Server {
	opts.AckTimeout = cmp.Or(opts.AckTimeout, 10*time.Second)
	opts.Pacing.setDefaults()
	opts.Limits.setDefaults()
	server := &Server{
		catalog: catalog, opts: opts, log: cmp.Or(opts.Log, slog.Default()),
		metrics: newMetrics(opts.Registerer, opts.Namespace), closing: make(chan struct{}),
		startLimiter:  newStartLimiter(opts.Limits.StartingStreams),
		unsyncedAfter: unsyncedAfter,
		logged:        rate.NewLimiter(linesLogged, 100),
		connectionLog: &connectionLog{limiter: rate.NewLimiter(linesLogged, 100)},
		streams:       make(map[uint64]*stream),
	}
	if opts.Registerer != nil {
		opts.Registerer.MustRegister(newLag(server, opts.Namespace))
	}
	if opts.Identifier != "" {
		cp, err := proto.Marshal(&corev3.ControlPlane{Identifier: opts.Identifier})
		if err == nil { // else the identifier is not UTF-8, and is left out
			server.sotwControl = protowire.AppendBytes(protowire.AppendTag(nil, sotwControlPlane, protowire.BytesType), cp)
			server.deltaControl = protowire.AppendBytes(protowire.AppendTag(nil, deltaControlPlane, protowire.BytesType), cp)
		}
	}
	return server
}

// unsyncedAfter is the time after which a log line tells that clients wait for a collection without MarkSynced: the
// program may have forgotten the call.
const unsyncedAfter = 30 * time.Second

// warnIfUnsynced logs a warning if clients wait too long for a collection.
func (s *Server) warnIfUnsynced(collection *Collection) {
	if collection.Synced() {
		return
	}
	if _, isLogged := s.unsynced.LoadOrStore(collection, true); isLogged {
		return
	}
	time.AfterFunc(s.unsyncedAfter, func() {
		s.unsynced.Delete(collection)
		select {
		case <-s.closing:
			return
		default:
		}
		if !collection.Synced() {
			s.log.Warn("clients wait for a collection on which MarkSynced was not called",
				"type_url", collection.typ.URL, "entries", collection.Len(), "for", s.unsyncedAfter)
		}
	})
}

// Close ends all streams and waits for their end. Stop the gRPC server first: if a client does not read, its stream
// ends only with its connection. Stop closes connections, and GracefulStop does not.
func (s *Server) Close() {
	s.Drain(context.Background(), 0)
	s.receivers.Wait()
}

// Drain refuses new streams with a status that makes clients try another replica. It ends the present streams in slices
// spread over the given time, so that not all clients reconnect at once. It returns when it has ended all; when ctx
// ends, it ends the rest at once. The stream of a client that does not read goes on until the gRPC server stops.
func (s *Server) Drain(ctx context.Context, over time.Duration) {
	const slices = 10
	s.mu.Lock()
	if !s.draining {
		s.draining = true
		close(s.closing)
	}
	s.mu.Unlock()
	remaining := s.streamList()
	size := len(remaining)/slices + 1
	for len(remaining) > 0 {
		count := min(size, len(remaining))
		s.end(errDraining, remaining[:count]...)
		remaining = remaining[count:]
		if len(remaining) > 0 && over > 0 {
			select {
			case <-ctx.Done():
				over = 0
			case <-time.After(over / slices):
			}
		}
	}
}

var errDraining = status.Error(codes.Unavailable, "server is shutting down")

// serve handles a new stream.
func (s *Server) serve(serverStream grpc.ServerStream, delta bool, fixedType string) error {
	ctx := serverStream.Context()
	newStream := &stream{
		id: s.lastID.Add(1), server: s, grpc: serverStream, delta: delta, fixedType: fixedType, connected: time.Now(),
		wakeup: make(wakeup, 1), drain: make(chan struct{}), noops: newNoopThrottle(),
	}
	if p, ok := peer.FromContext(ctx); ok {
		newStream.peer = address.Peer(p.Addr)
		newStream.host = address.Host(p.Addr)
	}
	if identity := s.opts.Identity; identity != nil {
		newStream.identity = identity(ctx)
	}
	if s.opts.Gzip {
		newStream.zip = enableGzip(serverStream)
	}
	if err := s.admit(newStream); err != nil {
		s.logRefusal(newStream, err)
		return err
	}
	defer s.leave(newStream)
	s.metrics.stream(delta, 1)
	defer s.metrics.stream(delta, -1)
	if delta {
		_ = serverStream.SetHeader(chunkMark) // it fails only after a header was sent
	}
	err := newStream.run(ctx)
	newStream.logDisconnected(err)
	if status.Code(err) == codes.ResourceExhausted {
		s.logRefusal(newStream, err)
	}
	return err
}

// services are the discovery services of the protocol: the aggregated one, and one for each Envoy type. The unary Fetch
// methods are not served.
var services = []struct {
	name, file  string
	sotw, delta string // method names
	typeURL     string // empty: any
}{
	{
		"envoy.service.discovery.v3.AggregatedDiscoveryService", "discovery/v3/ads", "StreamAggregatedResources",
		"DeltaAggregatedResources", "",
	},
	{"envoy.service.cluster.v3.ClusterDiscoveryService", "cluster/v3/cds", "StreamClusters", "DeltaClusters", ClusterURL},
	{
		"envoy.service.endpoint.v3.EndpointDiscoveryService", "endpoint/v3/eds", "StreamEndpoints", "DeltaEndpoints",
		EndpointURL,
	},
	{
		"envoy.service.listener.v3.ListenerDiscoveryService", "listener/v3/lds", "StreamListeners", "DeltaListeners",
		ListenerURL,
	},
	{"envoy.service.route.v3.RouteDiscoveryService", "route/v3/rds", "StreamRoutes", "DeltaRoutes", RouteURL},
	{
		"envoy.service.route.v3.ScopedRoutesDiscoveryService", "route/v3/srds", "StreamScopedRoutes", "DeltaScopedRoutes",
		ScopedURL,
	},
	{"envoy.service.route.v3.VirtualHostDiscoveryService", "route/v3/rds", "", "DeltaVirtualHosts", VHostURL},
	{"envoy.service.secret.v3.SecretDiscoveryService", "secret/v3/sds", "StreamSecrets", "DeltaSecrets", SecretURL},
	{"envoy.service.runtime.v3.RuntimeDiscoveryService", "runtime/v3/rtds", "StreamRuntime", "DeltaRuntime", RuntimeURL},
	{
		"envoy.service.extension.v3.ExtensionConfigDiscoveryService", "extension/v3/config_discovery",
		"StreamExtensionConfigs",
		"DeltaExtensionConfigs", ExtURL,
	},
}

// Register adds the discovery services to a gRPC server.
func (s *Server) Register(serviceRegistrar grpc.ServiceRegistrar) {
	for _, service := range services {
		desc := &grpc.ServiceDesc{
			ServiceName: service.name, HandlerType: (*any)(nil),
			Metadata: "envoy/service/" + service.file + ".proto",
		}
		method := func(name string, delta bool) {
			if name == "" {
				return
			}
			desc.Streams = append(desc.Streams, grpc.StreamDesc{
				StreamName: name, ServerStreams: true, ClientStreams: true,
				Handler: func(_ any, serverStream grpc.ServerStream) error {
					return s.serve(serverStream, delta, service.typeURL)
				},
			})
		}
		method(service.sotw, false)
		method(service.delta, true)
		serviceRegistrar.RegisterService(desc, s)
	}
}
