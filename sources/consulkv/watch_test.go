package consulkv

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/consul/consultest"
)

// A wiped Consul lets queries for an index beyond its own wait, as a real one does (1.22).
func TestWatch_DoesNotWaitForWipedConsul(t *testing.T) {
	for name, wipe := range map[string]struct {
		pulse time.Duration
		cut   bool
	}{
		// The connection of the waiting query ends, and the new Consul takes the next one.
		"it is not asked again by itself": {time.Hour, true},
		// A proxy, or a connection that took its time, holds the query until it can be handed to the new Consul.
		"a proxy holds the query": {5 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			consul := consultest.New(t)
			filled(consul, 0, 9)
			var waiting atomic.Int64
			consul.Proxy = func(_ http.ResponseWriter, request *http.Request) bool {
				if !request.URL.Query().Has("index") {
					return false
				}
				waiting.Add(1)
				if !wipe.cut {
					<-request.Context().Done()
				}
				return !wipe.cut
			}
			source := newSource(t, consul, Settings{Wait: 10 * time.Minute})
			source.place.pulseInterval = wipe.pulse
			r := runThis(t, consul, source)
			r.Await("it waits", func() bool { return waiting.Load() > 0 })
			consul.Wipe()
			consul.Set("mesh/new", entryText("new", 80))
			r.Await("it is shown, long before the next end of a query that waits", func() bool { return r.has("new") })
		})
	}
}

// A proxy takes Consul's headers away from the beginning. There is a pause before each attempt.
func TestAnswersWithoutHeaders_AreBounded(t *testing.T) {
	consul := consultest.New(t)
	filled(consul, 0, 3)
	consul.Headerless = true
	source := newSource(t, consul, Settings{})
	var pauses pauses
	source.place.newBackOff = func() backoff.BackOff { return &pauses }
	r := runThis(t, consul, source)
	r.Await("it pauses for the third time", func() bool { return pauses.Load() >= 3 })
	require.LessOrEqual(t, len(reads(consul)), 2*3, "a question, and one that makes sure")
	r.AwaitState(sources.Unreachable, "not Consul's")
}

// pauses counts them; the third does not end.
type pauses struct{ atomic.Int64 }

func (p *pauses) Reset() {}

func (p *pauses) NextBackOff() time.Duration {
	if p.Add(1) >= 3 {
		return time.Hour
	}
	return time.Millisecond
}
