package xds

import (
	"cmp"
	"context"
	"math"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"tributary/internal/words"
)

// Limits protect the server from its clients. A limit that is zero has its default, and one that is negative is none.
type Limits struct {
	Streams        int // open at once; 10,000
	StreamsPerPeer int // open at once from one IP address; 5,000
	// StreamsPerConnection are open at once on one connection, those of other services included; 100. Clients are told, and leave more
	// for another connection, or for later.
	StreamsPerConnection int
	// ConnectionsPerSecond are let in from one IP address, sustained; a tenth of a second's worth at once; 500. Others wait, and those who
	// would wait for longer than HandshakeTimeout are cut off.
	ConnectionsPerSecond float64
	// StreamsPerSecond are opened from one IP address, sustained, whether or not they are reset at once; a tenth of a second's worth at once;
	// 500. Others wait: their connections are read no further until it is their turn.
	StreamsPerSecond float64
	StartingStreams  int // streams served their first responses at once, while others wait; 16 per processor
	TypesPerStream   int // type URLs that one stream asks for; 256
	// NamesPerStream bounds the names that one stream subscribes to, over all types, and the versions that one request brings
	// along; 200,000. A name of more than 128 bytes counts as several. Names bounds those of all streams together; 5,000,000, of
	// which one IP address has half.
	NamesPerStream, Names int
	// RequestBytes is the size of one request; 16 MiB, and no more than 1 GiB. One that resumes a subscription to 100,000
	// resources has their names and versions, some 8 MB.
	RequestBytes int
	// RequestMemory bounds, in bytes, what requests of more than 64 KiB may take of all clients together, until they were
	// answered; 64 MiB, and never less than RequestBytes. Others wait to be read.
	RequestMemory     int
	RequestsPerSecond float64 // of one stream, acknowledgements included, sustained; bursts of ten seconds' worth are let through; 10,000
	// RefusalDelay is how long a refused stream is kept before it is told. istiod starts its backoff anew whenever a
	// stream opens, so that refusing it at once invites it back twice a second. One second.
	RefusalDelay time.Duration
	// HeaderBytes is the size of the headers of a stream, each counted as 32 more than it has; 64 KiB.
	HeaderBytes int
	// HandshakeTimeout is how long a new connection has for the handshakes of TLS and HTTP/2; 10 seconds.
	HandshakeTimeout time.Duration
	// FirstRequestTimeout is how long a stream may be without a request; one minute.
	FirstRequestTimeout time.Duration
	// IdleConnection is how long a connection may be without a stream; 5 minutes.
	IdleConnection time.Duration
	// StuckFor is how long a client that is being sent something may take next to nothing of it; 2 minutes.
	StuckFor time.Duration
	// ConnectionAge is how long a connection from another machine is used, give or take a tenth; 30 minutes. Its client is told to open
	// new streams on another connection (GOAWAY), and later its streams end with UNAVAILABLE, so that clients spread over replicas.
	ConnectionAge time.Duration
}

const (
	hugeRequest = 1 << 30
	hugeHeaders = 16 << 20 // which gRPC allows
)

func (l *Limits) setDefaults() {
	l.Streams = cmp.Or(l.Streams, 10_000)
	l.StreamsPerPeer = cmp.Or(l.StreamsPerPeer, 5000)
	l.StartingStreams = cmp.Or(l.StartingStreams, startingPerProcessor*runtime.GOMAXPROCS(0))
	l.TypesPerStream = cmp.Or(l.TypesPerStream, 256)
	l.NamesPerStream = cmp.Or(l.NamesPerStream, 200_000)
	l.Names = cmp.Or(l.Names, 5_000_000)
	if l.RequestBytes = cmp.Or(l.RequestBytes, 16<<20); l.RequestBytes < 0 || l.RequestBytes > hugeRequest {
		l.RequestBytes = hugeRequest
	}
	if l.RequestMemory = cmp.Or(l.RequestMemory, 64<<20); l.RequestMemory < 0 {
		l.RequestMemory = math.MaxInt
	}
	l.RequestMemory = max(l.RequestMemory, l.RequestBytes)
	l.RequestsPerSecond = cmp.Or(l.RequestsPerSecond, 10_000)
	l.RefusalDelay = cmp.Or(l.RefusalDelay, time.Second)
	l.StreamsPerConnection = cmp.Or(l.StreamsPerConnection, 100)
	l.StreamsPerSecond = cmp.Or(l.StreamsPerSecond, 500)
	l.ConnectionsPerSecond = cmp.Or(l.ConnectionsPerSecond, 500)
	if l.HeaderBytes = cmp.Or(l.HeaderBytes, 64<<10); l.HeaderBytes < 0 || l.HeaderBytes > hugeHeaders {
		l.HeaderBytes = hugeHeaders
	}
	l.HandshakeTimeout = cmp.Or(l.HandshakeTimeout, 10*time.Second)
	l.FirstRequestTimeout = cmp.Or(l.FirstRequestTimeout, time.Minute)
	l.IdleConnection = cmp.Or(l.IdleConnection, 5*time.Minute)
	l.StuckFor = cmp.Or(l.StuckFor, 2*time.Minute)
	l.ConnectionAge = cmp.Or(l.ConnectionAge, 30*time.Minute)
}

// orForever is a time that is not limited if it is negative.
func orForever(d time.Duration) time.Duration {
	if d < 0 {
		return math.MaxInt64
	}
	return d
}

// exceeded says whether n is beyond a limit.
func exceeded(n, limit int) bool { return limit >= 0 && n > limit }

// The reasons of a refusal, as they label the metric.
const (
	refusedDraining       = "draining"
	refusedStreams        = "streams"
	refusedStreamsPerPeer = "streams_per_peer"
	refusedOthers         = "others_per_peer"
	refusedTypes          = "types_per_stream"
	refusedNamesPerStream = "names_per_stream"
	refusedNames          = "names"
	refusedNamesPerPeer   = "names_per_peer"
	refusedRequestBytes   = "request_bytes"
	refusedRequestMemory  = "request_memory"
	refusedStalled        = "request_stalled"
	refusedFrames         = "request_frames"
	refusedRequestRate    = "request_rate"
	refusedNoops          = "chatter"
	refusedPerConnection  = "streams_per_connection"
	refusedStreamRate     = "stream_rate"
	refusedHeaders        = "header_bytes"
	refusedArrivals       = "connection_rate"
	refusedHandshake      = "handshake"
	refusedFirstRequest   = "first_request"
	refusedIdle           = "idle_connection"
	refusedStuck          = "stuck"
)

// admit takes a new stream into the server's books, or says why not.
func (s *Server) admit(st *stream) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return s.refuse(refusedDraining, codes.Unavailable, "server is shutting down")
	}
	if err := s.enter(st.host); err != nil {
		return err
	}
	s.streams[st.id] = st
	return nil
}

// leave undoes admit.
func (s *Server) leave(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, st.id)
	s.exit(st.host)
}

// enter counts a stream of any service, or says why there may be no more; s.mu is held.
func (s *Server) enter(host string) error {
	l := &s.opts.Limits
	switch {
	case exceeded(s.counted+1, l.Streams):
		return s.refuse(refusedStreams, codes.ResourceExhausted, "too many streams: the limit is %d", l.Streams)
	case exceeded(s.perPeer[host]+1, l.StreamsPerPeer):
		return s.refuse(refusedStreamsPerPeer, codes.ResourceExhausted, "too many streams from %s: the limit is %d", host, l.StreamsPerPeer)
	}
	s.counted++
	s.perPeer[host]++
	return nil
}

// exit undoes enter; s.mu is held.
func (s *Server) exit(host string) {
	s.counted--
	if s.perPeer[host]--; s.perPeer[host] <= 0 {
		delete(s.perPeer, host)
	}
}

// refuse counts a refusal and returns it as a gRPC status that makes clients back off.
func (s *Server) refuse(reason string, code codes.Code, format string, args ...any) error {
	s.refused(reason)
	return status.Errorf(code, format, args...)
}

func (s *Server) refused(reason string) { s.metrics.refusals.WithLabelValues(reason).Inc() }

// maxStalled is how many refused streams are kept waiting at once: who is refused must not fill the memory either.
const maxStalled = 1000

// stall logs a refusal and delays the news of it.
func (s *Server) stall(st *stream, err error) {
	if s.logged.Allow() {
		attrs := []any{"peer", st.peer, "err", words.Plain(err.Error())}
		if id := st.nodeID(); id != "" { // else it was refused before it had said so
			attrs = append([]any{"node_id", id}, attrs...)
		}
		s.log.Warn("stream refused", attrs...)
	}
	defer s.stalled.Add(-1)
	if s.stalled.Add(1) > maxStalled {
		return
	}
	select {
	case <-st.grpc.Context().Done():
	case <-s.closing:
	case <-time.After(s.opts.Limits.RefusalDelay):
	}
}

// limiter returns the limiter of one stream's requests, or nil.
func (l *Limits) limiter() *rate.Limiter {
	return limiterOf(l.RequestsPerSecond)
}

// limiterOf allows so much a second, and bursts of ten times that. It is nil if there is no limit.
func limiterOf(perSecond float64) *rate.Limiter {
	if perSecond <= 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(perSecond), max(int(10*perSecond), 1))
}

// checkRequest refuses a request that has too much in it or comes too soon.
func (s *stream) checkRequest(req *request) error {
	l := &s.server.opts.Limits
	if !s.delta || req.typeURL == "" { // else it may be of a type that has names of others' making
		if err := s.checkNames(req); err != nil {
			return err
		}
	}
	if s.limiter != nil && !s.limiter.Allow() {
		return s.server.refuse(refusedRequestRate, codes.ResourceExhausted, "too many requests: the limit is %g a second", l.RequestsPerSecond)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.charge(req.nodeCost)
}

// checkNames refuses a request with too many names.
func (s *stream) checkNames(req *request) error {
	if !req.tooMany() {
		return nil
	}
	return s.server.refuse(refusedNamesPerStream, codes.ResourceExhausted, "request for more than %d names, which is the limit",
		s.server.opts.Limits.NamesPerStream)
}

// checkTypes refuses a stream that asks for another type, if it has as many as it may.
func (s *stream) checkTypes() error {
	l, types := &s.server.opts.Limits, len(s.types)+len(s.unanswered)+1
	if exceeded(types, l.TypesPerStream) {
		return s.server.refuse(refusedTypes, codes.ResourceExhausted, "subscriptions to %d types: the limit is %d", types, l.TypesPerStream)
	}
	return nil
}

// charge counts more names, or fewer, and refuses the stream if there are too many; s.mu is held.
func (s *stream) charge(more int) error {
	if s.closed || more == 0 {
		return nil
	}
	l := &s.server.opts.Limits
	s.cost += more
	all, ofHost := s.server.names.add(s.host, more)
	switch {
	case more < 0:
		return nil
	case exceeded(s.cost, l.NamesPerStream):
		return s.server.refuse(refusedNamesPerStream, codes.ResourceExhausted, "subscriptions to %d names: the limit is %d", s.cost,
			l.NamesPerStream)
	case exceeded(ofHost, l.namesPerPeer()):
		return s.server.refuse(refusedNamesPerPeer, codes.ResourceExhausted, "subscriptions from %s to %d names: the limit is %d", s.host, ofHost,
			l.namesPerPeer())
	case exceeded(all, l.Names):
		return s.server.refuse(refusedNames, codes.ResourceExhausted, "subscriptions of all streams to %d names: the limit is %d", all, l.Names)
	}
	return nil
}

// namesPerPeer is what the names may cost of all streams from one IP address: half of what those of all may, so that others come in beside
// it, but what one stream may.
func (l *Limits) namesPerPeer() int {
	if l.Names < 0 || l.NamesPerStream < 0 {
		return l.Names
	}
	return max(l.Names/2, min(l.NamesPerStream, l.Names))
}

// nameCosts are what the names cost of all streams.
type nameCosts struct {
	mu  sync.Mutex
	all int
	of  map[string]int // by IP address
}

// add counts more names of a host, or fewer, and returns what those of all hosts cost, and those of this one.
func (n *nameCosts) add(host string, more int) (all, ofHost int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.of == nil {
		n.of = make(map[string]int)
	}
	n.all += more
	if n.of[host] += more; n.of[host] <= 0 {
		delete(n.of, host)
	}
	return n.all, n.of[host]
}

// inAll returns what the names of all hosts cost.
func (n *nameCosts) inAll() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.all
}

// HostOf returns the IP address of the client whose stream has ctx, by which limits count, or all of an address that has none. It is
// empty if ctx is that of no stream.
func HostOf(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return hostOf(p.Addr)
	}
	return ""
}

// hostOf returns the IP address of a peer, or all of an address that has none.
func hostOf(addr net.Addr) string {
	if addr.Network() == "unix" { // all clients of it have its name as they like
		return addr.Network()
	}
	if ap, err := netip.ParseAddrPort(addr.String()); err == nil {
		return ap.Addr().Unmap().String()
	}
	return addr.String()
}

// peerOf is how a client's address is shown. The end of a unix socket is named as its owner likes, also like an address.
func peerOf(addr net.Addr) string {
	if addr.Network() == "unix" {
		return "unix:" + addr.String()
	}
	return addr.String()
}
