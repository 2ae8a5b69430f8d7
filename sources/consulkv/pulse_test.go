package consulkv

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/consul/consultest"
)

// A query whose index is newer than one pulse goes on waiting, however many earlier ones were: a change follows each
// pulse, which a server that lags answers.
func TestPulse_LagsBehindEachQueryOnce(t *testing.T) {
	consul := consultest.New(t)
	var pulses, immediate atomic.Int64
	awaitQuery := func(ctx context.Context) {
		for consul.Waiting() == 0 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
	}
	consul.Proxy = func(response http.ResponseWriter, request *http.Request) bool {
		query := request.URL.Query()
		if !query.Has("keys") {
			if !query.Has("index") {
				immediate.Add(1)
			}
			return false
		}
		awaitQuery(request.Context())
		_, answer, _ := consul.Read(request.Context(), request.URL.Path, consultest.Query{Names: true})
		consul.Set("mesh/r0", entryText("r0", int(pulses.Add(1))))
		awaitQuery(request.Context())
		response.Header().Set("X-Consul-Index", fmt.Sprint(answer.Index))
		response.Header().Set("X-Consul-LastContact", "0")
		response.Header().Set("X-Consul-KnownLeader", "true")
		_, _ = response.Write([]byte("[]"))
		return true
	}
	filled(consul, 0, 1)
	r := runSource(t, consul, Settings{})
	r.Await("pulses", func() bool { return pulses.Load() > 20 || immediate.Load() > 1 })
	require.EqualValues(t, 1, immediate.Load())
}

// A Consul that hangs keeps its connections open: the query that waits meets no error.
func TestHangingConsul_Unreachable(t *testing.T) {
	consul := consultest.New(t)
	consul.Set("mesh/a", entryText("a", 80))
	source := newSource(t, consul, Settings{Wait: 10 * time.Minute})
	source.place.requestTimeout = 100 * time.Millisecond
	var pauses outagePauses
	source.place.newBackOff = func() backoff.BackOff { return &pauses }
	running := runThis(t, consul, source)
	running.AwaitState(sources.Healthy)
	running.Await("it waits", func() bool { return consul.Waiting() > 0 })
	consul.Edit(func() { consul.Hangs = true })
	running.AwaitState(sources.Unreachable, "read mesh/: no answer within 100ms")
	running.Await("it pauses", func() bool { return pauses.Load() > 0 })
	require.True(t, running.has("a"))
	consul.Restore()
	running.AwaitState(sources.Healthy)
}

// outagePauses counts pauses that do not end by themselves.
type outagePauses struct{ atomic.Int64 }

func (p *outagePauses) Reset() {}

func (p *outagePauses) NextBackOff() time.Duration {
	p.Add(1)
	return time.Hour
}

// A pulse without an answer is no outage while lists are answered.
func TestSilentPulses_KeepHealthy(t *testing.T) {
	t.Parallel()
	consul := consultest.New(t)
	consul.Set("mesh/a", entryText("a", 80))
	var silent atomic.Int64
	consul.Proxy = func(_ http.ResponseWriter, request *http.Request) bool {
		isPulse := request.URL.Query().Has("keys")
		if isPulse {
			silent.Add(1)
			<-request.Context().Done()
		}
		return isPulse
	}
	source := newSource(t, consul, Settings{})
	source.place.requestTimeout = time.Second
	source.place.newBackOff = func() backoff.BackOff { return new(outagePauses) }
	running := runThis(t, consul, source)
	running.Await("three pulses", func() bool { return silent.Load() > 2 })
	running.AwaitState(sources.Healthy)
	consul.Set("mesh/b", entryText("b", 80))
	running.Await("changes", func() bool { return running.has("b") })
}
