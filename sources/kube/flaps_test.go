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
				history := newHistory(t, 1)
				settings := kube.Settings{Hold: 5 * time.Minute, Kinds: []string{"VirtualService", "ServiceEntry"}}
				history.locked(func() {
					history.lax = true
					history.Put(resource, "shop", "web", "spec: {hosts: [web]}")
				})
				history.run(settings)
				served := func() (served bool) {
					history.locked(func() { served = len(history.out.groups[group]) > 0 })
					return served
				}
				time.Sleep(time.Minute)
				if !served() {
					t.Fatal("it is not served: ", history.out.groups)
				}
				history.locked(func() {
					history.Remove(resource)
					history.note()
				})
				time.Sleep(30 * time.Second)
				began, up := time.Now(), 30*time.Second
				for up < 20*time.Minute && served() {
					history.Down(true)
					time.Sleep(5 * time.Second)
					if restarts {
						history.stop()
						history.run(settings)
						time.Sleep(5 * time.Second)
					}
					history.Down(false)
					time.Sleep(2 * time.Minute)
					up += 2 * time.Minute
				}
				t.Logf("after %s, with the server available for %s: %+v", time.Since(began), up, history.out.health)
				if served() || up < 4*time.Minute {
					t.Errorf("served: %t, after the server was there for %s\n%s", served(), up, strings.Join(history.steps, "\n"))
				}
			})
		})
	}
}
