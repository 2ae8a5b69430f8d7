package consulkv

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"

	"tributary/memstore"
	"tributary/sources/consulkv/kvtest"
)

// Each check of the rights finds that another key has gone meanwhile, and that the former one is back.
func TestKeysThatComeAndGo_DelayNoOthers(t *testing.T) {
	c := kvtest.New(t)
	filled(c, 0, 9)
	target, _ := url.Parse("http://" + c.Addr())
	proxy := httputil.NewSingleHostReverseProxy(target)
	var checks atomic.Int64
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			former := checks.Add(1) % 2
			filled(c, int(former), int(former)+1)
			c.Delete(fmt.Sprint("mesh/r", 1-former))
		}
		proxy.ServeHTTP(w, r)
	}))
	r := &running{t: t, consul: c, table: new(memstore.Table)}
	r.runAt(front.Listener.Addr().String(), Settings{})
	t.Cleanup(func() {
		c.Answer(http.StatusInternalServerError, "shutting down")
		front.Close()
	})
	r.await("sync", r.table.Synced)
	c.Set("mesh/new", entryText("new", 80))
	c.Delete("mesh/r8")
	r.await("it is shown", func() bool { return r.has("new") && !r.has("r8") })
}
