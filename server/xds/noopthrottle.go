package xds

import (
	"context"
	"time"

	"tributary/server/xds/wire"

	"golang.org/x/time/rate"
)

// noopThrottle delays reading from a client after requests that neither change the subscription nor answer a response.
// Ending the stream would cost more: the client would reconnect.
type noopThrottle struct {
	answers uint64 // no-op requests
	spare   *rate.Limiter
	noticed bool
}

// The rate of undelayed no-ops. It is many times the rate of clients that answer twice, or that send requests while
// responses are on their way.
const noopsPerSecond, noopsBurst = 10, 10

func newNoopThrottle() noopThrottle {
	return noopThrottle{spare: rate.NewLimiter(noopsPerSecond, noopsBurst)}
}

// delay returns how long to wait after a no-op. Each sent response may be answered once without delay.
func (n *noopThrottle) delay(responses uint64, now time.Time) time.Duration {
	n.answers++
	if n.answers <= responses {
		return 0
	}
	n.answers--
	return n.spare.ReserveN(now, 1).DelayFrom(now)
}

// throttle waits if a request was a no-op.
func (s *stream) throttle(ctx context.Context, request *wire.Request, now time.Time) {
	if request.ChangesSubscription {
		return
	}
	s.mu.Lock()
	responses := s.sent
	s.mu.Unlock()
	wait := s.noops.delay(responses, now)
	if wait <= 0 {
		return
	}
	if !s.noops.noticed {
		s.noops.noticed = true
		s.server.Refused(refusedNoops)
		if s.server.logged.Allow() {
			s.server.log.Warn("client throttled: its requests neither ask for anything new nor answer a response",
				"node_id", s.nodeID(), "peer", s.peer, "type_url", request.TypeURL)
		}
	}
	select {
	case <-ctx.Done():
	case <-time.After(wait):
	}
}
