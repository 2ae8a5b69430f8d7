package kube_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tributary/sources/kube"
)

// TestHoldOfCRDEndsThoughServerFlaps has an API server without a CRD that is away for a few seconds, more often than
// the hold lasts. The objects of the kind go after the hold, in which outages do not count.
func TestHoldOfCRDEndsThoughServerFlaps(t *testing.T) {
	for name, restarts := range map[string]bool{"one run": false, "restarts during outages": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const resource, group = "virtualservices.networking.istio.io", "VirtualService/shop/web"
				h := newHistory(t, 1)
				settings := kube.Settings{Hold: 5 * time.Minute, Kinds: []string{"VirtualService", "ServiceEntry"}}
				h.locked(func() {
					h.lax = true
					h.write(resource, "shop", "web", map[string]any{"spec": map[string]any{"hosts": []any{"web"}}})
				})
				h.run(settings)
				served := func() (served bool) {
					h.locked(func() { served = len(h.out.groups[group]) > 0 })
					return served
				}
				time.Sleep(time.Minute)
				if !served() {
					t.Fatal("it is not served: ", h.out.groups)
				}
				h.locked(func() {
					h.apis[resource] = nil
					h.note()
					h.endLocked()
				})
				time.Sleep(30 * time.Second)
				began, up := time.Now(), 30*time.Second
				for up < 20*time.Minute && served() {
					h.locked(func() { h.down = true; h.endLocked() })
					time.Sleep(5 * time.Second)
					if restarts {
						h.stop()
						h.run(settings)
						time.Sleep(5 * time.Second)
					}
					h.locked(func() { h.down = false })
					time.Sleep(2 * time.Minute)
					up += 2 * time.Minute
				}
				t.Logf("after %s, with the server available for %s: %+v", time.Since(began), up, h.out.health)
				if served() || up < 4*time.Minute {
					t.Errorf("served: %t, after the server was there for %s\n%s", served(), up, strings.Join(h.steps, "\n"))
				}
			})
		})
	}
}
