package consulkv

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/consul/consultest"
)

// onlyKeys is a proxy in front of Consul that refuses all other requests.
func onlyKeys(response http.ResponseWriter, request *http.Request) bool {
	if strings.HasPrefix(request.URL.Path, "/v1/kv/") {
		return false
	}
	http.Error(response, "<html>not allowed</html>", http.StatusMethodNotAllowed)
	return true
}

func hideKeys(consul *consultest.Server, prefix string) {
	consul.Edit(func() { consul.HiddenKeys = prefix })
}

// Consul takes any characters in keys, and does not let all of them be read by their names.
func TestKeys_ThatNoPathCanExpress(t *testing.T) {
	for operation, proxy := range map[string]func(http.ResponseWriter, *http.Request) bool{"by itself": nil, "behind a proxy": onlyKeys} {
		for _, key := range []string{"mesh/a//b", "mesh/a\tb", "mesh/../b"} {
			t.Run(operation+" "+key, func(t *testing.T) {
				consul := consultest.New(t)
				filled(consul, 0, 3)
				consul.Set(key, entryText("odd", 80))
				consul.Proxy = proxy
				r := runSource(t, consul, Settings{})
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
	consul := consultest.New(t)
	filled(consul, 0, 3)
	consul.Proxy = onlyKeys
	r := runSource(t, consul, Settings{})
	r.AwaitSync()
	hideKeys(consul, "mesh/r1")
	r.AwaitState(sources.Denied, "Permission denied", "policy")
	require.Equal(t, 3, r.count(3))
}

// The token is lost while keys are held. At the end of the suspicion, their existence is unknown.
func TestHeldKeys_AreReadBeforeTheyGo(t *testing.T) {
	t.Parallel()
	consul, running := synced(t, 9, Settings{ResetHold: time.Second})
	running.wipe()
	running.AwaitState(sources.Degraded, "lost its data")
	hideKeys(consul, "mesh/r8") // no token is sent any more
	filled(consul, 0, 9)        // all are back, and that one cannot be seen
	running.AwaitState(sources.Denied, "no token is sent", "policy")
	require.Equal(t, 9, running.count(9))
	consul.Restore()
	running.AwaitState(sources.Healthy)
	require.Equal(t, 9, running.count(9))
}

// An answer lacks the names of keys.
func TestNullInAList(t *testing.T) {
	c, running := synced(t, 3, Settings{})
	c.Answer(http.StatusOK, "[null]", "X-Consul-Index", "50", "X-Consul-KnownLeader", "true", "X-Consul-LastContact", "0")
	running.AwaitState(sources.Unreachable, "not Consul's")
	require.Equal(t, 3, running.count(3))
}

// The rights return between a list that hides keys and the check of the rights.
func TestRights_ThatReturnProveNoEarlierList(t *testing.T) {
	consul := consultest.New(t)
	filled(consul, 0, 3)
	var armed atomic.Bool
	var readsBefore atomic.Int64 // how many reads there were when the rights had come back; 0 before
	consul.Proxy = func(_ http.ResponseWriter, request *http.Request) bool {
		if request.Method == http.MethodPost && armed.Load() {
			hideKeys(consul, "no existing key")
			readsBefore.CompareAndSwap(0, int64(len(reads(consul))))
		}
		return false
	}
	r := runSource(t, consul, Settings{Wait: 10 * time.Second})
	r.AwaitSync()
	armed.Store(true)
	hideKeys(consul, "mesh/r1")
	r.Await("it read twice more", func() bool {
		return readsBefore.Load() > 0 && int64(len(reads(consul))) >= readsBefore.Load()+2
	})
	require.Equal(t, 1, r.Status().Publishes, "no key goes, even for a moment")
	require.Equal(t, 3, r.count(3))
}
