package xds

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tributary/internal/words"
)

// logConnected logs a client after its first request, which has its node.
func (s *stream) logConnected() {
	attrs := []any{"node_id", s.nodeID(), "peer", s.peer, "stream", s.id, "variant", variantName(s.delta)}
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

// connectionLog logs each client that connects and disconnects, below a rate. The next line then has the number of
// suppressed lines.
type connectionLog struct {
	limiter    *rate.Limiter
	suppressed atomic.Int64
}

func (c *connectionLog) log(log *slog.Logger, msg string, attrs ...any) {
	if !c.limiter.Allow() {
		c.suppressed.Add(1)
		return
	}
	if suppressed := c.suppressed.Swap(0); suppressed > 0 {
		attrs = append(attrs, "suppressed", suppressed)
	}
	log.Info(msg, attrs...) //nolint:sloglint // it is one of two
}
