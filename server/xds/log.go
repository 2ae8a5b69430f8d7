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

// cameIn logs who a client is, once it has said so.
func (s *stream) cameIn() {
	variant := "sotw"
	if s.delta {
		variant = "delta"
	}
	said := []any{"node_id", s.nodeID(), "peer", s.peer, "stream", s.id, "variant", variant}
	if s.identity != "" {
		said = append(said, "identity", s.identity)
	}
	s.server.visits.say(s.server.log, "client connected", said...)
}

// wentAway logs why a stream has ended, and how long it was open. One that said nothing is not worth a line.
func (s *stream) wentAway(err error) {
	s.mu.Lock()
	silent := s.node == nil
	s.mu.Unlock()
	if silent {
		return
	}
	s.server.visits.say(s.server.log, "client disconnected", "node_id", s.nodeID(), "peer", s.peer, "stream", s.id,
		"after", time.Since(s.connected).Round(time.Millisecond), "why", whyEnded(err))
}

// whyEnded says in words why a stream has ended.
func whyEnded(err error) string {
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return "it is done"
	case status.Code(err) == codes.Canceled, errors.Is(err, context.Canceled):
		return "the connection ended, or the client ended the stream"
	}
	return words.Plain(err.Error())
}

// visits has a line for each client that comes and goes. When too many do at once, the next line says how many had none.
type visits struct {
	limiter *rate.Limiter
	unsaid  atomic.Int64
}

func (v *visits) say(log *slog.Logger, msg string, attrs ...any) {
	if !v.limiter.Allow() {
		v.unsaid.Add(1)
		return
	}
	if before := v.unsaid.Swap(0); before > 0 {
		attrs = append(attrs, "visits_before", before)
	}
	log.Info(msg, attrs...) //nolint:sloglint // it is one of two
}
