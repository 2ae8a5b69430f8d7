package consulkv

import (
	"encoding/base64"
	"fmt"
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

// A wiped Consul lets queries for an index beyond its own wait, as a real one does (1.22).
func TestWatch_DoesNotWaitForWipedConsul(t *testing.T) {
	for name, wipe := range map[string]struct {
		pulse time.Duration
		cut   bool
	}{
		// The connection of the waiting query ends, and the new Consul takes the next one.
		"it is not asked again by itself": {time.Hour, true},
		// A proxy, or a connection that took its time, holds the query until it can be handed to the new Consul.
		"whoever holds the query": {5 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := &wipeable{index: 5000, body: `[{"Key":"mesh/r0","CreateIndex":4000,"ModifyIndex":4000,"Value":""}]`, changed: make(chan struct{})}
			server := httptest.NewServer(c)
			t.Cleanup(func() { server.CloseClientConnections(); server.Close() }) // when no query waits
			source, err := New("consul-kv://"+server.Listener.Addr().String()+"/mesh", Settings{Wait: 10 * time.Minute})
			require.NoError(t, err)
			source.place.pulseEvery = wipe.pulse
			r := newRunning(t, nil)
			r.runThis(source)
			r.Await("it waits", func() bool { return c.waiting.Load() > 0 })
			c.become(10, fmt.Sprintf(`[{"Key":"mesh/new","CreateIndex":9,"ModifyIndex":9,"Value":%q}]`, b64(entryText("new", 80))))
			if wipe.cut {
				server.CloseClientConnections()
			}
			r.Await("it is shown, long before the next end of a query that waits", func() bool { return r.has("new") })
		})
	}
}

// wipeable is a Consul whose index may go back.
type wipeable struct {
	waiting atomic.Int64

	mu      sync.Mutex
	index   uint64
	body    string
	changed chan struct{}
}

func (w *wipeable) become(index uint64, body string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.index, w.body = index, body
	close(w.changed)
	w.changed = make(chan struct{})
}

// ServeHTTP implements http.Handler.
func (w *wipeable) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	min, _ := strconv.ParseUint(request.URL.Query().Get("index"), 10, 64)
	wait, _ := time.ParseDuration(request.URL.Query().Get("wait"))
	deadline := time.After(wait)
	for {
		w.mu.Lock()
		index, text, changed := w.index, w.body, w.changed
		w.mu.Unlock()
		if min == 0 || index > min {
			if request.URL.Path != "/v1/kv/mesh/" || request.URL.Query().Has("keys") {
				text = "[]"
			}
			response.Header().Set("X-Consul-Index", fmt.Sprint(index))
			response.Header().Set("X-Consul-LastContact", "0")
			response.Header().Set("X-Consul-KnownLeader", "true")
			_, _ = response.Write([]byte(text))
			return
		}
		w.waiting.Add(1)
		select {
		case <-changed:
		case <-request.Context().Done():
			return
		case <-deadline:
			min = 0
		}
	}
}

// A proxy takes Consul's headers away from the beginning. It is not to be asked without end: before each attempt there is a pause.
func TestAnswersWithoutHeaders_AreBounded(t *testing.T) {
	consul := kvtest.New(t)
	filled(consul, 0, 3)
	target, _ := url.Parse("http://" + consul.Addr())
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ModifyResponse = func(r *http.Response) error {
		for _, h := range []string{"X-Consul-Index", "X-Consul-Knownleader", "X-Consul-Lastcontact"} {
			r.Header.Del(h)
		}
		return nil
	}
	front := httptest.NewServer(proxy)
	defer front.Close()
	source, err := New("consul-kv://"+front.Listener.Addr().String()+"/mesh", Settings{})
	require.NoError(t, err)
	var pauses pauses
	source.place.newBackOff = func() backoff.BackOff { return &pauses }
	r := newRunning(t, nil)
	r.runThis(source)
	r.Await("it pauses for the third time", func() bool { return pauses.Load() >= 3 })
	require.LessOrEqual(t, len(consul.Reads()), 2*3, "a question, and one that makes sure")
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

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
