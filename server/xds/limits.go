package xds

import (
	"context"
	"net"
	"net/netip"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Limits protect the server from its clients. Zero means no limit.
type Limits struct {
	Streams           int     // open at once
	StreamsPerPeer    int     // open at once from one IP address
	StartingStreams   int     // streams served their first responses at once, while others wait; 16 per processor if zero, negative for no limit
	TypesPerStream    int     // type URLs that one stream subscribes to
	NamesPerStream    int     // names that one stream subscribes to, over all types
	RequestBytes      int     // size of one request, at most maxRequest
	RequestsPerSecond float64 // of one stream, acknowledgements included, sustained; bursts of ten seconds' worth are let through
	// RefusalDelay is how long a refused stream is kept before it is told. istiod starts its backoff anew whenever a
	// stream opens, so that refusing it at once invites it back twice a second. One second if zero; negative for none.
	RefusalDelay time.Duration
}

// maxRequest is how large a request gRPC lets through. One that resumes a subscription to 100,000 resources has their names
// and versions, some 6 MB.
const maxRequest = 64 << 20

// The reasons of a refusal, as they label the metric.
const (
	refusedDraining       = "draining"
	refusedStreams        = "streams"
	refusedStreamsPerPeer = "streams_per_peer"
	refusedTypes          = "types_per_stream"
	refusedNames          = "names_per_stream"
	refusedRequestBytes   = "request_bytes"
	refusedRequestRate    = "request_rate"
)

// admit takes a new stream into the server's books, or says why not.
func (s *Server) admit(st *stream) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &s.opts.Limits
	switch {
	case s.draining:
		return s.refuse(refusedDraining, codes.Unavailable, "server is shutting down")
	case l.Streams > 0 && len(s.streams) >= l.Streams:
		return s.refuse(refusedStreams, codes.ResourceExhausted, "too many streams: the limit is %d", l.Streams)
	case l.StreamsPerPeer > 0 && s.perPeer[st.host] >= l.StreamsPerPeer:
		return s.refuse(refusedStreamsPerPeer, codes.ResourceExhausted, "too many streams from %s: the limit is %d", st.host, l.StreamsPerPeer)
	}
	s.streams[st] = struct{}{}
	s.perPeer[st.host]++
	return nil
}

// leave undoes admit.
func (s *Server) leave(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, st)
	if s.perPeer[st.host]--; s.perPeer[st.host] <= 0 {
		delete(s.perPeer, st.host)
	}
}

// refuse counts a refusal and returns it as a gRPC status that makes clients back off.
func (s *Server) refuse(reason string, code codes.Code, format string, args ...any) error {
	s.metrics.refusals.WithLabelValues(reason).Inc()
	return status.Errorf(code, format, args...)
}

// hold delays the news of a refusal.
func (s *Server) hold(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-s.closing:
	case <-time.After(s.opts.Limits.RefusalDelay):
	}
}

// limiter returns the limiter of one stream's requests, or nil.
func (l *Limits) limiter() *rate.Limiter {
	if l.RequestsPerSecond <= 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(l.RequestsPerSecond), max(int(10*l.RequestsPerSecond), 1))
}

// checkRequest refuses a request that is too large or comes too soon.
func (s *stream) checkRequest(req *request) error {
	l := &s.server.opts.Limits
	if l.RequestBytes > 0 && req.size > l.RequestBytes {
		return s.server.refuse(refusedRequestBytes, codes.ResourceExhausted, "request of %d bytes: the limit is %d", req.size, l.RequestBytes)
	}
	if s.limiter != nil && !s.limiter.Allow() {
		return s.server.refuse(refusedRequestRate, codes.ResourceExhausted, "too many requests: the limit is %g a second", l.RequestsPerSecond)
	}
	return nil
}

// checkSubscriptions refuses a stream that has come to subscribe to too much; s.mu is held.
func (s *stream) checkSubscriptions() error {
	l := &s.server.opts.Limits
	if l.TypesPerStream > 0 && len(s.subs) > l.TypesPerStream {
		return s.server.refuse(refusedTypes, codes.ResourceExhausted, "subscriptions to %d types: the limit is %d", len(s.subs), l.TypesPerStream)
	}
	if l.NamesPerStream <= 0 {
		return nil
	}
	names := 0
	for _, sub := range s.subs {
		names += len(sub.wants.names) + len(sub.has.lacks) + len(sub.has.stale)
	}
	if names > l.NamesPerStream {
		return s.server.refuse(refusedNames, codes.ResourceExhausted, "subscriptions to %d names: the limit is %d", names, l.NamesPerStream)
	}
	return nil
}

// hostOf returns the IP address of a peer, or all of an address that has none.
func hostOf(addr net.Addr) string {
	if ap, err := netip.ParseAddrPort(addr.String()); err == nil {
		return ap.Addr().Unmap().String()
	}
	return addr.String()
}
