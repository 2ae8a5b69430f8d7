package xds

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tributary/internal/words"
)

// Hooks are functions that streams call, unless they are nil. Many streams call them at once, and each stream waits for its call. They
// must not modify or keep their arguments.
type Hooks struct {
	// Identity is called when a stream begins. It returns the identity that the client has proven, for ClientStatus.
	Identity func(ctx context.Context) string
	// Request is called with each request after its limits are checked and before it is applied. An error, which should carry a gRPC
	// status, ends the stream.
	Request func(ctx context.Context, r *RequestInfo) error
	// Response is called with each response before it is sent.
	Response func(ctx context.Context, r *ResponseInfo)
}

// RequestInfo is a request as hooks see it.
type RequestInfo struct {
	StreamID uint64 // as in ClientStatus
	Peer     string
	Delta    bool
	Node     *corev3.Node // of the first request of the stream that had one, without its extensions

	TypeURL string // of a service for a single type if the client gave none; else it may be empty
	Version string // SotW
	Nonce   string
	Error   string // the client's reason to reject the response of Nonce, which may be cut; empty if it does not

	Names                  []string // SotW: all names that the client wants
	Subscribe, Unsubscribe []string // delta
}

// ResponseInfo is a response as hooks see it.
type ResponseInfo struct {
	StreamID       uint64
	TypeURL        string
	Version, Nonce string
	Resources      int // including removals
	Bytes          int
}

// ErrNoAnswer is for a Catalog that does not serve a type, or not to this client: the client gets no answer for it, and its
// stream goes on, except on Review, which ends it. Most clients wait for some time for a type, and go on without it; istiod waits
// for ever.
var ErrNoAnswer = errors.New("there is no answer for this type")

// hookRequest calls the hook for a request.
func (s *stream) hookRequest(r *request, typeURL string) error {
	hook := s.server.opts.Hooks.Request
	if hook == nil {
		return nil
	}
	return hook(s.grpc.Context(), &RequestInfo{
		StreamID: s.id, Peer: s.peer, Delta: s.delta, Node: r.node,
		TypeURL: typeURL, Version: r.version, Nonce: r.nonce, Error: r.err.GetMessage(),
		Names: r.names, Subscribe: r.subscribe, Unsubscribe: r.unsub,
	})
}

// hookResponse calls the hook for a response.
func (s *stream) hookResponse(out *frame) {
	if hook := s.server.opts.Hooks.Response; hook != nil && out.info != nil {
		hook(s.grpc.Context(), out.info)
	}
}

// logConnected logs a client whose node is known.
func (s *stream) logConnected() {
	variant := "sotw"
	if s.delta {
		variant = "delta"
	}
	attrs := []any{"node_id", s.nodeID(), "peer", s.peer, "stream", s.id, "variant", variant}
	if s.identity != "" {
		attrs = append(attrs, "identity", s.identity)
	}
	s.server.connectionLog.log(s.server.log, "client connected", attrs...)
}

// logDisconnected logs why a stream has ended, and how long it was open. Streams without a request are not logged.
func (s *stream) logDisconnected(err error) {
	s.mu.Lock()
	silent := s.node == nil
	s.mu.Unlock()
	if silent {
		return
	}
	s.server.connectionLog.log(s.server.log, "client disconnected", "node_id", s.nodeID(), "peer", s.peer, "stream", s.id,
		"after", time.Since(s.connected).Round(time.Millisecond), "why", whyEnded(err))
}

// whyEnded returns the reason why a stream has ended, in words.
func whyEnded(err error) string {
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return "client closed the stream"
	case status.Code(err) == codes.Canceled, errors.Is(err, context.Canceled):
		return "the connection ended, or the client ended the stream"
	}
	return words.Plain(err.Error())
}

// connectionLog logs each client that connects and disconnects, below a rate. The next line then has the number of suppressed lines.
type connectionLog struct {
	limiter    *rate.Limiter
	suppressed atomic.Int64
}

func (v *connectionLog) log(log *slog.Logger, msg string, attrs ...any) {
	if !v.limiter.Allow() {
		v.suppressed.Add(1)
		return
	}
	if suppressed := v.suppressed.Swap(0); suppressed > 0 {
		attrs = append(attrs, "suppressed", suppressed)
	}
	log.Info(msg, attrs...) //nolint:sloglint // it is one of two
}
