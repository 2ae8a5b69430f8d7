package consulkv

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/consulkv/kvtest"
)

// lagging is a Consul with a change at each pulse, which a server that lags answers.
type lagging struct {
	mu        sync.Mutex
	index     int
	changed   *sync.Cond
	asked     int // the index of the query that waits
	pulses    int
	immediate int // queries that do not wait
	over      bool
}

// ServeHTTP implements http.Handler.
func (l *lagging) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	index, text := l.index, `[{"Key":"mesh/r0","CreateIndex":1,"ModifyIndex":1,"Value":""}]`
	switch after, _ := strconv.Atoi(request.URL.Query().Get("index")); {
	case request.URL.Query().Has("keys"):
		for l.asked < l.index && !l.over {
			l.changed.Wait()
		}
		index, text = l.index, "[]"
		l.index++
		l.pulses++
		l.changed.Broadcast()
		for l.asked < l.index && !l.over {
			l.changed.Wait()
		}
	case after == 0:
		l.immediate++
	default:
		l.asked = after
		l.changed.Broadcast()
		for l.index <= after && !l.over {
			l.changed.Wait()
		}
		index = l.index
	}
	response.Header().Set("X-Consul-Index", strconv.Itoa(index))
	response.Header().Set("X-Consul-LastContact", "0")
	response.Header().Set("X-Consul-KnownLeader", "true")
	_, _ = response.Write([]byte(text))
}

// A query whose index is newer than one pulse goes on waiting, however many earlier ones were.
func TestPulse_LagsBehindEachQueryOnce(t *testing.T) {
	c := &lagging{index: 10}
	c.changed = sync.NewCond(&c.mu)
	server := httptest.NewServer(c)
	r := newRunning(t, nil)
	r.runAt(server.Listener.Addr().String(), Settings{})
	t.Cleanup(func() {
		c.mu.Lock()
		c.over = true
		c.changed.Broadcast()
		c.mu.Unlock()
		server.CloseClientConnections()
		server.Close()
	})
	r.Await("pulses", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.pulses > 20 || c.immediate > 1
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Equal(t, 1, c.immediate)
}

// A Consul that hangs keeps its connections open: the query that waits meets no error.
func TestHangingConsul_Unreachable(t *testing.T) {
	consul := kvtest.New(t)
	consul.Set("mesh/a", entryText("a", 80))
	running := newRunning(t, consul)
	source := sourceAt(t, consul.Addr(), Settings{Wait: 10 * time.Minute})
	source.place.requestTimeout = 100 * time.Millisecond
	var pauses outagePauses
	source.place.newBackOff = func() backoff.BackOff { return &pauses }
	running.runThis(source)
	running.AwaitState(sources.Healthy)
	running.Await("it waits", func() bool { return consul.Waiting() > 0 })
	consul.Hang()
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
	consul := kvtest.New(t)
	consul.Set("mesh/a", entryText("a", 80))
	target, err := url.Parse("http://" + consul.Addr())
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	var silent atomic.Int64
	front := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		if request.URL.Query().Has("keys") {
			silent.Add(1)
			<-request.Context().Done()
			return
		}
		proxy.ServeHTTP(response, request)
	}))
	t.Cleanup(front.Close)
	running := newRunning(t, consul)
	source := sourceAt(t, front.Listener.Addr().String(), Settings{})
	source.place.requestTimeout = time.Second
	source.place.newBackOff = func() backoff.BackOff { return new(outagePauses) }
	running.runThis(source)
	running.Await("three pulses", func() bool { return silent.Load() > 2 })
	running.AwaitState(sources.Healthy)
	consul.Set("mesh/b", entryText("b", 80))
	running.Await("changes", func() bool { return running.has("b") })
}
