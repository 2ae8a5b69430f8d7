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

	"tributary/memstore"
	"tributary/sources"
	"tributary/sources/consulkv/kvtest"
)

// The connection of the query that waits ends, and who takes the next one is a Consul that was wiped. As a real Consul (1.22), it
// lets an index that it has not reached wait.
func TestAWatchIsNotAskedAgainByItself(t *testing.T) {
	var mu sync.Mutex
	index, body := uint64(5000), `[{"Key":"mesh/r0","CreateIndex":4000,"ModifyIndex":4000,"Value":""}]`
	changed := make(chan struct{})
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/kv/mesh/" {
			w.Header().Set("X-Consul-Index", "5")
			w.Header().Set("X-Consul-LastContact", "0")
			w.Header().Set("X-Consul-KnownLeader", "true")
			_, _ = w.Write([]byte("[]"))
			return
		}
		asked.Add(1)
		min, _ := strconv.ParseUint(r.URL.Query().Get("index"), 10, 64)
		wait, _ := time.ParseDuration(r.URL.Query().Get("wait"))
		deadline := time.After(wait)
		for {
			mu.Lock()
			at, text, c := index, body, changed
			mu.Unlock()
			if min == 0 || at > min {
				w.Header().Set("X-Consul-Index", fmt.Sprint(at))
				w.Header().Set("X-Consul-LastContact", "0")
				w.Header().Set("X-Consul-KnownLeader", "true")
				_, _ = w.Write([]byte(text))
				return
			}
			select {
			case <-c:
			case <-r.Context().Done():
				return
			case <-deadline:
				min = 0
			}
		}
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() }) // when nobody asks any more
	source, err := New("consul-kv://"+s.Listener.Addr().String()+"/mesh", Settings{Wait: 10 * time.Minute})
	require.NoError(t, err)
	source.place.pulseEvery = time.Hour
	r := &running{t: t, table: &memstore.Table{}, supervisor: sources.NewSupervisor(sources.Options{})}
	require.NoError(t, r.supervisor.Add(sources.Spec{Name: "kv", Source: source, Table: r.table}))
	go func() { _ = r.supervisor.Run(t.Context()) }()
	r.await("it waits", func() bool { return asked.Load() >= 2 })
	mu.Lock()
	index, body = 10, fmt.Sprintf(`[{"Key":"mesh/new","CreateIndex":9,"ModifyIndex":9,"Value":%q}]`, b64(entryText("new", 80)))
	close(changed)
	changed = make(chan struct{})
	mu.Unlock()
	s.CloseClientConnections()
	r.await("it is shown, long before the next end of a query that waits", func() bool { return r.has("new") })
}

// A proxy takes Consul's headers away from the beginning. It is not to be asked without end: before each attempt there is a pause.
func TestAnswersWithoutHeadersAreNotReadWithoutEnd(t *testing.T) {
	c := kvtest.New(t)
	filled(c, 0, 3)
	target, _ := url.Parse("http://" + c.Addr())
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
	r := &running{t: t, table: &memstore.Table{}, supervisor: sources.NewSupervisor(sources.Options{})}
	require.NoError(t, r.supervisor.Add(sources.Spec{Name: "kv", Source: source, Table: r.table}))
	go func() { _ = r.supervisor.Run(t.Context()) }()
	r.await("it pauses for the third time", func() bool { return pauses.Load() >= 3 })
	require.LessOrEqual(t, len(c.Reads()), 2*3, "a question, and one that makes sure")
	r.awaitHealth(sources.Unreachable, "not Consul's")
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
