package xds

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// cameIn logs who a client is, once it has said so.
func (s *stream) cameIn() {
	if s.server.visits.Allow() {
		variant := "sotw"
		if s.delta {
			variant = "delta"
		}
		s.server.log.Info("client connected", "node_id", s.nodeID(), "peer", s.peer, "stream", s.id, "variant", variant)
	}
}

// wentAway logs why a stream has ended, and how long it was open. One that said nothing is not worth a line.
func (s *stream) wentAway(err error) {
	s.mu.Lock()
	silent := s.node == nil
	s.mu.Unlock()
	if silent || !s.server.visits.Allow() {
		return
	}
	s.server.log.Info("client disconnected", "node_id", s.nodeID(), "peer", s.peer, "stream", s.id,
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
	return err.Error()
}
