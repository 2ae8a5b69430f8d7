package xds

import (
	"context"
	"time"

	"golang.org/x/time/rate"
)

// noopThrottle slows down a client that talks for the sake of it: that neither asks for something, nor for something else than before, nor
// answers something that it was sent. Honest ones say nothing of the kind. Its stream is not read for a while, so that it costs nothing,
// and nobody but itself waits. To end it would have it come back, which costs more.
type noopThrottle struct {
	answers uint64 // requests that changed nothing
	spare   *rate.Limiter
	noticed bool
}

// How much of it is let through. It is many times what a client says that answers twice, or that was overtaken.
const noopsPerSecond, noopsBurst = 10, 10

func newNoopThrottle() noopThrottle {
	return noopThrottle{spare: rate.NewLimiter(noopsPerSecond, noopsBurst)}
}

// heard returns how long not to listen after a request that changed nothing, when so many responses were sent: each may be answered once.
func (c *noopThrottle) heard(responses uint64, now time.Time) time.Duration {
	if c.answers++; c.answers <= responses {
		return 0
	}
	c.answers--
	return c.spare.ReserveN(now, 1).DelayFrom(now)
}

// slow waits if a request was a no-op.
func (s *stream) slow(ctx context.Context, req *request, now time.Time) {
	if req.asks {
		return
	}
	s.mu.Lock()
	responses := s.sent
	s.mu.Unlock()
	wait := s.noops.heard(responses, now)
	if wait <= 0 {
		return
	}
	if !s.noops.noticed {
		s.noops.noticed = true
		s.server.Refused(refusedNoops)
		if s.server.logged.Allow() {
			s.server.log.Warn("client is read slowly: it sends requests that neither ask for something new nor answer something", "node_id",
				s.nodeID(), "peer", s.peer, "type_url", req.typeURL)
		}
	}
	select {
	case <-ctx.Done():
	case <-time.After(wait):
	}
}
