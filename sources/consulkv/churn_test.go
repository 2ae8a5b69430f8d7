package consulkv

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"

	"tributary/sources/consulkv/kvtest"
)

// Each check of the rights finds that another key has gone meanwhile, and that the former one is back.
func TestKeysThatComeAndGo_DelayNoOthers(t *testing.T) {
	consul := kvtest.New(t)
	filled(consul, 0, 9)
	target, _ := url.Parse("http://" + consul.Addr())
	proxy := httputil.NewSingleHostReverseProxy(target)
	var checks atomic.Int64
	front := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		if request.Method == http.MethodPost {
			former := checks.Add(1) % 2
			filled(consul, int(former), int(former)+1)
			consul.Delete(fmt.Sprint("mesh/r", 1-former))
		}
		proxy.ServeHTTP(response, request)
	}))
	r := newRunning(t, consul)
	r.runAt(front.Listener.Addr().String(), Settings{})
	t.Cleanup(func() {
		consul.Answer(http.StatusInternalServerError, "shutting down")
		front.Close()
	})
	r.AwaitSync()
	consul.Set("mesh/new", entryText("new", 80))
	consul.Delete("mesh/r8")
	r.Await("it is shown", func() bool { return r.has("new") && !r.has("r8") })
}
