package consulkv

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/consulkv/kvtest"
)

// front imitates the path handling of Consul: it redirects paths that are not clean and refuses some characters.
// Requests that the proxy refuses do not arrive at all.
func front(t *testing.T, consul *kvtest.Consul, proxy func(*http.Request) bool) (address string) {
	serveMux := http.NewServeMux()
	serveMux.Handle("/", consul)
	server := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		switch {
		case proxy(request):
			http.Error(response, "<html>not allowed</html>", http.StatusMethodNotAllowed)
		case strings.ContainsAny(request.URL.Path, "\t\n"):
			http.Error(response, "contains invalid character", http.StatusBadRequest)
		default:
			serveMux.ServeHTTP(response, request)
		}
	}))
	t.Cleanup(func() {
		consul.Answer(http.StatusInternalServerError, "shutting down")
		server.Close()
	})
	return server.Listener.Addr().String()
}

func everything(*http.Request) bool { return false }
func onlyKeys(r *http.Request) bool { return !strings.HasPrefix(r.URL.Path, "/v1/kv/") }

// Consul takes any characters in keys, and does not let all of them be read by their names.
func TestKeys_ThatNoPathCanExpress(t *testing.T) {
	for operation, proxy := range map[string]func(*http.Request) bool{"by itself": everything, "behind a proxy": onlyKeys} {
		for _, key := range []string{"mesh/a//b", "mesh/a\tb", "mesh/../b"} {
			t.Run(operation+" "+key, func(t *testing.T) {
				consul := kvtest.New(t)
				filled(consul, 0, 3)
				consul.Set(key, entryText("odd", 80))
				r := newRunning(t, consul)
				r.runAt(front(t, consul, proxy), Settings{})
				r.Await("sync", func() bool { return r.table.Synced() && r.has("odd") })
				consul.Delete(key)
				consul.Set("mesh/r7", entryText("r7", 80))
				r.Await("it is followed", func() bool { return r.has("r7") && !r.has("odd") })
				r.AwaitState(sources.Healthy)
			})
		}
	}
}

// Where the question for rights does not arrive, the keys are asked for by their names.
func TestHiddenBehindAProxy(t *testing.T) {
	consul := kvtest.New(t)
	filled(consul, 0, 3)
	r := newRunning(t, consul)
	r.runAt(front(t, consul, onlyKeys), Settings{})
	r.AwaitSync()
	consul.Hide("mesh/r1")
	r.AwaitState(sources.Denied, "Permission denied", "policy")
	require.Equal(t, 3, r.count(3))
}

// The token is lost while keys are held. At the end of the suspicion, their existence is unknown.
func TestHeldKeys_AreReadBeforeTheyGo(t *testing.T) {
	t.Parallel()
	consul := kvtest.New(t)
	filled(consul, 0, 9)
	running := runSource(t, consul, Settings{ResetHold: time.Second})
	running.AwaitSync()
	running.wipe()
	running.AwaitState(sources.Degraded, "lost its data")
	consul.Hide("mesh/r8") // no token is sent any more
	filled(consul, 0, 9)   // all are back, and that one cannot be seen
	running.AwaitState(sources.Denied, "no token is sent", "policy")
	require.Equal(t, 9, running.count(9))
	consul.Restore()
	running.AwaitState(sources.Healthy)
	require.Equal(t, 9, running.count(9))
}

// An answer lacks the names of keys.
func TestNullInAList(t *testing.T) {
	c := kvtest.New(t)
	filled(c, 0, 3)
	running := runSource(t, c, Settings{})
	running.AwaitSync()
	c.Answer(http.StatusOK, "[null]", "X-Consul-Index", "50", "X-Consul-KnownLeader", "true", "X-Consul-LastContact", "0")
	running.AwaitState(sources.Unreachable, "not Consul's")
	require.Equal(t, 3, running.count(3))
}

// The rights return between a list that hides keys and the check of the rights.
func TestRights_ThatReturnProveNoEarlierList(t *testing.T) {
	consul := kvtest.New(t)
	filled(consul, 0, 3)
	target, _ := url.Parse("http://" + consul.Addr())
	proxy := httputil.NewSingleHostReverseProxy(target)
	var armed atomic.Bool
	var readsBefore atomic.Int64 // how many reads there were when the rights had come back; 0 before
	front := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		if request.Method == http.MethodPost && armed.Load() {
			consul.Hide("no existing key")
			readsBefore.CompareAndSwap(0, int64(len(consul.Reads())))
		}
		proxy.ServeHTTP(response, request)
	}))
	defer front.Close()
	r := newRunning(t, consul)
	r.runAt(front.Listener.Addr().String(), Settings{Wait: 10 * time.Second})
	r.AwaitSync()
	armed.Store(true)
	consul.Hide("mesh/r1")
	least := 3
	r.Await("it read twice more", func() bool {
		least = min(least, r.count(3))
		return readsBefore.Load() > 0 && int64(len(consul.Reads())) >= readsBefore.Load()+2
	})
	require.Equal(t, 3, least)
	require.Equal(t, 3, r.count(3))
}
