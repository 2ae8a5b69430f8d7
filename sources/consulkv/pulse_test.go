package consulkv

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
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
func (c *lagging) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	index, text := c.index, `[{"Key":"mesh/r0","CreateIndex":1,"ModifyIndex":1,"Value":""}]`
	switch after, _ := strconv.Atoi(request.URL.Query().Get("index")); {
	case request.URL.Query().Has("keys"):
		for c.asked < c.index && !c.over {
			c.changed.Wait()
		}
		index, text = c.index, "[]"
		c.index++
		c.pulses++
		c.changed.Broadcast()
		for c.asked < c.index && !c.over {
			c.changed.Wait()
		}
	case after == 0:
		c.immediate++
	default:
		c.asked = after
		c.changed.Broadcast()
		for c.index <= after && !c.over {
			c.changed.Wait()
		}
		index = c.index
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
	r := &running{t: t, table: new(memstore.Table)}
	r.runAt(server.Listener.Addr().String(), Settings{})
	t.Cleanup(func() {
		c.mu.Lock()
		c.over = true
		c.changed.Broadcast()
		c.mu.Unlock()
		server.CloseClientConnections()
		server.Close()
	})
	r.await("pulses", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.pulses > 20 || c.immediate > 1
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Equal(t, 1, c.immediate)
}
