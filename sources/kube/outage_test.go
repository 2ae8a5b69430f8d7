package kube

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/kube/kubetest"
)

// front is a server that answers like another one, unless do has answered.
func front(t *testing.T, to *kubetest.Server, do func(http.ResponseWriter, *http.Request) (handled bool)) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !do(w, req) {
			to.ServeHTTP(w, req)
		}
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

// TestDeadServer_IsUnreachableAtOnce is unreachable at once, although the next discovery is far away and one connection
// stays open.
func TestDeadServer_IsUnreachableAtOnce(t *testing.T) {
	server := istioServer(t)
	put(server, 1, "a")
	var dead atomic.Bool
	source := quick(t, server, Settings{Kinds: []string{"ServiceEntry", "VirtualService"}})
	source.discoveryInterval, source.maxWatch = time.Hour, time.Hour
	source.cluster.url = front(t, server, func(response http.ResponseWriter, request *http.Request) bool {
		if dead.Load() {
			panic(http.ErrAbortHandler)
		}
		if silent := strings.Contains(request.URL.String(), "/virtualservices?allowWatchBookmarks"); !silent {
			return false
		}
		response.(http.Flusher).Flush()
		<-request.Context().Done()
		return true
	})
	rig := start(t, server, source).synced()
	rig.AwaitState(sources.Healthy, "")
	dead.Store(true)
	server.Cut()
	rig.AwaitState(sources.Unreachable, "look for the kinds: ")
	dead.Store(false)
	rig.AwaitState(sources.Healthy, "")
}

// TestStartingServer_GrantsRightsLater: a server that starts refuses all requests at first. Kinds that it allows then
// are part of the first read.
func TestStartingServer_GrantsRightsLater(t *testing.T) {
	server := istioServer(t)
	put(server, 1, "a")
	refused := 0
	source := quick(t, server, Settings{})
	source.cluster.url = front(t, server, func(response http.ResponseWriter, req *http.Request) bool {
		refuses := strings.HasSuffix(req.URL.Path, "/serviceentries") && refused < maxFailuresAtStart-1
		if refuses {
			refused++
			response.WriteHeader(http.StatusForbidden)
		}
		return refuses
	})
	r := start(t, server, source).synced()
	require.Equal(t, []string{"ServiceEntry shop/a"}, r.served())
}

// resets counts the resets of a backoff.
type resets struct {
	backoff.BackOff
	n *atomic.Int32
}

func (r resets) Reset() { r.n.Add(1) }

// TestQuietWatch_ResetsBackoff: the next failure is retried soon, although no object changed since the last one.
func TestQuietWatch_ResetsBackoff(t *testing.T) {
	t.Parallel()
	server := kubetest.Start(t, entries)
	source := quick(t, server, Settings{})
	var n atomic.Int32
	source.newBackOff = func() backoff.BackOff { return resets{backoff.NewConstantBackOff(5 * time.Millisecond), &n} }
	source.discoveryInterval, source.maxWatch = time.Hour, time.Second
	r := start(t, server, source).synced()
	r.Await("discovery and the watch start again", func() bool { return n.Load() > 1 })
}
