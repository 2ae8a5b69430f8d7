package xds

import (
	"cmp"
	"context"
	"runtime"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"tributary/internal/address"
	"tributary/internal/words"
	"tributary/server/xds/wire"
)

// Limits protect the server from its clients. Zero is the default, and a negative number is no limit.
type Limits struct {
	// streams that are sent their first responses at the same time, while others wait; 16 per processor
	StartingStreams int
	TypesPerStream  int // type URLs that one stream subscribes to; 256
	// NamesPerStream bounds the names that one stream subscribes to, over all types, and the resume versions in one
	// request; 200,000. A name of more than 128 bytes counts as several. Names bounds those of all streams together;
	// 5,000,000. One IP address may have half of that.
	NamesPerStream, Names int
}

func (l *Limits) setDefaults() {
	l.StartingStreams = cmp.Or(l.StartingStreams, startingPerProcessor*runtime.GOMAXPROCS(0))
	l.TypesPerStream = cmp.Or(l.TypesPerStream, 256)
	l.NamesPerStream = cmp.Or(l.NamesPerStream, 200_000)
	l.Names = cmp.Or(l.Names, 5_000_000)
}

// exceeded says whether n is over a limit.
func exceeded(n, limit int) bool { return limit >= 0 && n > limit }

// The reasons of a refusal: label values of the metric.
const (
	refusedDraining       = "draining"
	refusedTypes          = "types_per_stream"
	refusedNamesPerStream = "names_per_stream"
	refusedNames          = "names"
	refusedNamesPerPeer   = "names_per_peer"
	refusedRequestMemory  = "request_memory"
	refusedNoops          = "noops"
)

// admit registers a new stream, or refuses it.
func (s *Server) admit(newStream *stream) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return s.refuse(refusedDraining, codes.Unavailable, "server is shutting down")
	}
	s.streams[newStream.id] = newStream
	return nil
}

// leave undoes admit.
func (s *Server) leave(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, st.id)
}

// refuse counts a refusal and returns it as a gRPC status.
func (s *Server) refuse(reason string, code codes.Code, format string, args ...any) error {
	s.Refused(reason)
	return status.Errorf(code, format, args...)
}

// Refused counts a refusal, by this server or by the program around it, under the name of a limit.
func (s *Server) Refused(reason string) { s.metrics.refusals.WithLabelValues(reason).Inc() }

// logRefusal logs that a stream is refused.
func (s *Server) logRefusal(refused *stream, err error) {
	if !s.logged.Allow() {
		return
	}
	attrs := []any{"peer", refused.peer, "err", words.Plain(err.Error())}
	if id := refused.nodeID(); id != "" { // else it was refused before its first request
		attrs = append([]any{"node_id", id}, attrs...)
	}
	s.log.Warn("stream refused", attrs...)
}

// checkRequest refuses a request with too many names or too large a node.
func (s *stream) checkRequest(request *wire.Request) error {
	if !s.delta || request.TypeURL == "" { // else reduce may drop some; and a query's names are not subscriptions
		if err := s.checkNames(request); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.charge(request.NodeCost)
}

// checkNames refuses a request with too many names.
func (s *stream) checkNames(req *wire.Request) error {
	if !req.TooMany() {
		return nil
	}
	return s.server.refuse(refusedNamesPerStream, codes.ResourceExhausted,
		"request for more than %d names, which is the limit",
		s.server.opts.Limits.NamesPerStream)
}

// checkTypes refuses one type more than the limit.
func (s *stream) checkTypes() error {
	l, types := &s.server.opts.Limits, len(s.types)+len(s.unanswered)+1
	if exceeded(types, l.TypesPerStream) {
		return s.server.refuse(refusedTypes, codes.ResourceExhausted, "subscriptions to %d types: the limit is %d", types,
			l.TypesPerStream)
	}
	return nil
}

// charge adds to the cost of the stream's names (added may be negative), and refuses the stream if it is too high; s.mu
// is held.
func (s *stream) charge(added int) error {
	if s.closed || added == 0 {
		return nil
	}
	limits := &s.server.opts.Limits
	s.cost += added
	total, ofHost := s.server.names.add(s.host, added)
	switch {
	case added < 0:
		return nil
	case exceeded(s.cost, limits.NamesPerStream):
		return s.server.refuse(refusedNamesPerStream, codes.ResourceExhausted, "subscriptions to %d names: the limit is %d",
			s.cost,
			limits.NamesPerStream)
	case exceeded(ofHost, limits.namesPerPeer()):
		return s.server.refuse(refusedNamesPerPeer, codes.ResourceExhausted,
			"subscriptions from %s to %d names: the limit is %d", s.host, ofHost,
			limits.namesPerPeer())
	case exceeded(total, limits.Names):
		return s.server.refuse(refusedNames, codes.ResourceExhausted,
			"subscriptions of all streams to %d names: the limit is %d", total, limits.Names)
	}
	return nil
}

// namesPerPeer is half of Names, so that one address cannot use it all, but at least NamesPerStream.
func (l *Limits) namesPerPeer() int {
	if l.Names < 0 || l.NamesPerStream < 0 {
		return l.Names
	}
	return max(l.Names/2, min(l.NamesPerStream, l.Names))
}

// nameCosts has the cost of the names of all streams.
type nameCosts struct {
	mu     sync.Mutex
	total  int
	byHost map[string]int // by IP address
}

// add adds to the cost of a host's names (added may be negative), and returns the cost for all hosts and for this one.
func (n *nameCosts) add(host string, added int) (total, ofHost int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.total += added
	if ofHost = n.byHost[host] + added; ofHost > 0 {
		put(&n.byHost, host, ofHost)
	} else {
		delete(n.byHost, host)
	}
	return n.total, ofHost
}

// HostOf returns the IP address of the client of ctx's stream; limits count by it. It is "unix" for all Unix sockets,
// the whole address if that has no IP address, and empty if ctx is of no stream.
func HostOf(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return address.Host(p.Addr)
	}
	return ""
}
