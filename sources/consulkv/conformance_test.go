package consulkv

import (
	"fmt"
	"testing"
	"time"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/consul/consultest"
	"tributary/sources/sourcetest"
)

func TestSource(t *testing.T) {
	t.Parallel()
	for name, unreachable := range map[string]error{
		"hangs up":     consultest.ErrHungUp,
		"no leader":    consultest.NoLeader,
		"rate limited": consultest.Busy,
	} {
		t.Run(name, func(t *testing.T) {
			sourcetest.Run(t, func(t *testing.T) sourcetest.Harness {
				return &harness{t: t, consul: consultest.New(t), unreachable: unreachable}
			})
		})
	}
}

// harness is a Consul with a service entry in each of some keys.
type harness struct {
	t           *testing.T
	consul      *consultest.Server
	unreachable error
	started     bool
}

func (h *harness) Source() sources.Source {
	h.started = true
	return newSource(h.t, h.consul, Settings{})
}

func (h *harness) Key(name string) resource.Key {
	return resource.Key{Kind: resource.ServiceEntry, Namespace: "shop", Name: name}
}

// Put returns when a running source has sent its next query. The server is in this process: a goroutine that serves a
// new query while the suite looks for leaks of another source would look like a leak.
func (h *harness) Put(name string, revision int) {
	h.consul.Set("mesh/"+name+".yaml", entryText(name, 8000+revision))
	for deadline := time.Now().Add(time.Second); h.started && h.consul.Waiting() == 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
}

func entryText(name string, port int) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata:
  name: %s
  namespace: shop
spec:
  hosts: [%s.example]
  ports: [{number: %d, name: http, protocol: HTTP}]
  resolution: DNS
`, name, name, port)
}

func (h *harness) Delete(name string) { h.consul.Delete("mesh/" + name + ".yaml") }
func (h *harness) Unreachable()       { h.consul.Fail(h.unreachable) }
func (h *harness) Restore()           { h.consul.Restore() }
func (h *harness) Deny()              { h.consul.Hide() }
func (h *harness) Break(name string)  { h.consul.Set("mesh/"+name+".yaml", entryText(name, 80000)) }
