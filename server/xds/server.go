package xds

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tributary/internal/address"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Catalog chooses the collections that clients see.
type Catalog interface {
	// Collection returns the collection that the client of node sees under typeURL, and a function, or nil, that the server calls when
	// the stream no longer uses the collection. An error, which should carry a gRPC status, ends the stream. ErrNoAnswer leaves only
	// the type without an answer, except on Review. The node must not be modified or kept. Collection may block until ctx ends: only
	// the stream waits for it.
	Collection(ctx context.Context, node *corev3.Node, typeURL string) (*Collection, func(), error)
}

// ErrNoAnswer is for a Catalog that does not serve a type, or not to this client: the client gets no answer for it, and its
// stream goes on, except on Review, which ends it. Most clients wait for some time for a type, and go on without it; istiod waits
// for ever.
var ErrNoAnswer = errors.New("there is no answer for this type")

// Options of a Server. The zero value is usable.
type Options struct {
	// Identifier is sent as control_plane.identifier with every response. Istio's tools expect JSON.
	Identifier string
	// Namespace comes before the names of the metrics: "tributary" makes them tributary_xds_….
	Namespace string
	// AckTimeout is how long an unacknowledged response holds back the next one of its type on the stream; changes coalesce
	// meanwhile. 10 s if zero.
	AckTimeout time.Duration
	Pacing     Pacing
	// Gzip compresses the responses to clients that accept it, once for all of them.
	Gzip       bool
	Log        *slog.Logger          // slog.Default if nil
	Registerer prometheus.Registerer // metrics are not exported if nil
	Limits     Limits
	// Identity, if not nil, is called when a stream begins, by many streams at once. It returns the identity that the client has proven,
	// for ClientStatus.
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
	reviews       atomic.Uint64 // calls of Review

	unsynced      sync.Map // *Collection → true: clients wait for its MarkSynced
	unsyncedAfter time.Duration

	closing chan struct{} // closed when draining begins

	mu       sync.Mutex
	streams  map[uint64]*stream // by id
	draining bool
}

// linesLogged is how many refusals and rejections a second are logged, and how many clients that connect and disconnect; metrics count all.
const linesLogged = 10

// NewServer returns a server of catalog. Register it with a gRPC server made with its ServerOptions.
func NewServer(catalog Catalog, opts Options) *Server {
	opts.AckTimeout = cmp.Or(opts.AckTimeout, 10*time.Second)
	opts.Pacing.setDefaults()
	opts.Limits.setDefaults()
	s := &Server{
		catalog: catalog, opts: opts, log: cmp.Or(opts.Log, slog.Default()),
		metrics: newMetrics(opts.Registerer, opts.Namespace), closing: make(chan struct{}),
		startLimiter:  newStartLimiter(opts.Limits.StartingStreams),
		unsyncedAfter: unsyncedAfter,
		logged:        rate.NewLimiter(linesLogged, 100), connectionLog: &connectionLog{limiter: rate.NewLimiter(linesLogged, 100)},
		streams: make(map[uint64]*stream),
	}
	if opts.Registerer != nil {
		opts.Registerer.MustRegister(newLag(s, opts.Namespace))
	}
	if opts.Identifier != "" {
		cp, err := proto.Marshal(&corev3.ControlPlane{Identifier: opts.Identifier})
		if err == nil { // else the identifier is not UTF-8, and is left out
			s.sotwControl = protowire.AppendBytes(protowire.AppendTag(nil, sotwControlPlane, protowire.BytesType), cp)
			s.deltaControl = protowire.AppendBytes(protowire.AppendTag(nil, deltaControlPlane, protowire.BytesType), cp)
		}
	}
	return s
}

// unsyncedAfter is how long clients wait for a collection without MarkSynced, which may be forgotten, before that is logged.
const unsyncedAfter = 30 * time.Second

// warnIfUnsynced logs a warning if clients wait too long for a collection.
func (s *Server) warnIfUnsynced(c *Collection) {
	if c.Synced() {
		return
	}
	if _, known := s.unsynced.LoadOrStore(c, true); known {
		return
	}
	time.AfterFunc(s.unsyncedAfter, func() {
		s.unsynced.Delete(c)
		select {
		case <-s.closing:
			return
		default:
		}
		if !c.Synced() {
			s.log.Warn("clients wait for a collection on which MarkSynced was not called",
				"type_url", c.typ.URL, "entries", c.Len(), "for", s.unsyncedAfter)
		}
	})
}

// Close ends all streams and waits until they have ended. Stop the gRPC server first: a stream whose client does not read ends only
// with its connection, which Stop closes and GracefulStop does not.
func (s *Server) Close() {
	s.Drain(context.Background(), 0)
	s.receivers.Wait()
}

// Drain refuses new streams, with a status that makes clients try elsewhere, and ends the others in slices spread over
// the given time, so that not all clients connect to other replicas at once. It returns when it has ended all; when ctx ends, it
// ends the rest at once. The stream of a client that does not read goes on until the gRPC server is stopped.
func (s *Server) Drain(ctx context.Context, over time.Duration) {
	const slices = 10
	s.mu.Lock()
	if !s.draining {
		s.draining = true
		close(s.closing)
	}
	left := make([]*stream, 0, len(s.streams))
	for _, st := range s.streams {
		left = append(left, st)
	}
	clear(s.streams)
	s.mu.Unlock()
	size := len(left)/slices + 1
	for len(left) > 0 {
		n := min(size, len(left))
		for _, st := range left[:n] {
			close(st.drain)
		}
		left = left[n:]
		if len(left) > 0 && over > 0 {
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
func (s *Server) serve(ss grpc.ServerStream, delta bool, fixedType string) error {
	ctx := ss.Context()
	st := &stream{
		id: s.lastID.Add(1), server: s, grpc: ss, delta: delta, fixedType: fixedType, connected: time.Now(),
		wakeup: make(wakeup, 1), drain: make(chan struct{}), noops: newNoopThrottle(),
	}
	if p, ok := peer.FromContext(ctx); ok {
		st.peer, st.host = address.Peer(p.Addr), address.Host(p.Addr)
	}
	if identity := s.opts.Identity; identity != nil {
		st.identity = identity(ctx)
	}
	if s.opts.Gzip {
		st.zip = enableGzip(ss)
	}
	if err := s.admit(st); err != nil {
		s.logRefusal(st, err)
		return err
	}
	defer s.leave(st)
	s.metrics.stream(delta, 1)
	defer s.metrics.stream(delta, -1)
	if delta {
		_ = ss.SetHeader(chunkMark) // it fails only after a header was sent
	}
	err := st.run(ctx)
	st.logDisconnected(err)
	if status.Code(err) == codes.ResourceExhausted {
		s.logRefusal(st, err)
	}
	return err
}

// ClientStatus is the status of one stream.
type ClientStatus struct {
	StreamID  uint64
	Node      *corev3.Node // nil before the first request
	Peer      string
	Identity  string // that the client has proven; empty if none
	Connected time.Time
	Delta     bool
	Types     []TypeStatus
}

// TypeStatus is the status of one type on one stream. Times are zero, and strings empty, if the event has not happened.
type TypeStatus struct {
	TypeURL    string // as the client asked for it
	Collection *Collection
	Wildcard   bool
	Names      int // subscribed by name
	// Synced says that the client has the newest version: it acknowledged it, or resumed with it.
	Synced bool

	SentVersion, SentNonce   string
	SentAt                   time.Time
	AckedVersion, AckedNonce string
	AckedAt                  time.Time
	NackNonce, NackError     string // of the last rejection
	NackAt                   time.Time
	Rejected                 []Rejection // in order of name
	Responses, Nacks         uint64
}

// Rejects reports whether the client rejected the last response, or a resource that it has not acknowledged since.
func (t *TypeStatus) Rejects() bool {
	return len(t.Rejected) > 0 || t.NackNonce != "" && t.NackNonce == t.SentNonce
}

// Streams returns the number of streams; zero once Drain begins.
func (s *Server) Streams() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

// Clients returns the status of every stream, in order of arrival; none once Drain begins. With many clients use EachClient.
func (s *Server) Clients() []ClientStatus {
	return slices.AppendSeq([]ClientStatus{}, s.EachClient())
}

// EachClient yields the status of every stream, in order of arrival; none once Drain begins. It takes each status just before it yields
// it, and also yields streams that end meanwhile.
func (s *Server) EachClient() iter.Seq[ClientStatus] {
	streams := s.all()
	slices.SortFunc(streams, func(a, b *stream) int { return cmp.Compare(a.id, b.id) })
	return func(yield func(ClientStatus) bool) {
		for _, st := range streams {
			if !yield(st.status()) {
				return
			}
		}
	}
}

// all returns the streams; none once Drain begins.
func (s *Server) all() []*stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	streams := make([]*stream, 0, len(s.streams))
	for _, st := range s.streams {
		streams = append(streams, st)
	}
	return streams
}

func (s *stream) status() ClientStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := ClientStatus{StreamID: s.id, Node: s.node, Peer: s.peer, Identity: s.identity, Connected: s.connected, Delta: s.delta}
	outdated := s.outdated()
	for _, sub := range s.subs {
		t := sub.status
		t.Collection, t.Wildcard, t.Names = sub.coll, sub.wants.all, len(sub.wants.names)
		t.Synced, t.Rejected = sub.synced() && !outdated, sub.rejections()
		c.Types = append(c.Types, t)
	}
	return c
}
