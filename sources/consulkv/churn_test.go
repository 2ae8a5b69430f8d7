package consulkv

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"tributary/sources/consul/consultest"
)

// Each check of the rights finds that another key has gone meanwhile, and that the former one is back.
func TestKeysThatComeAndGo_DelayNoOthers(t *testing.T) {
	consul := consultest.New(t)
	filled(consul, 0, 9)
	var checks atomic.Int64
	consul.Proxy = func(_ http.ResponseWriter, request *http.Request) bool {
		if request.Method == http.MethodPost {
			former := checks.Add(1) % 2
			filled(consul, int(former), int(former)+1)
			consul.Delete(fmt.Sprint("mesh/r", 1-former))
		}
		return false
	}
	r := runSource(t, consul, Settings{})
	r.AwaitSync()
	consul.Set("mesh/new", entryText("new", 80))
	consul.Delete("mesh/r8")
	r.Await("it is shown", func() bool { return r.has("new") && !r.has("r8") })
}
