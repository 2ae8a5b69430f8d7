package kube_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources/derive"
	"tributary/sources/kube"
	"tributary/sources/kube/kubetest"
)

// TestDiscovery_WrongAnswers are no proof that the cluster has no such kind, as of a proxy that answers {} to all.
func TestDiscovery_WrongAnswers(t *testing.T) {
	for _, text := range []string{"{}", "null", `{"kind": "Status", "status": "Success"}`, `{"kind": "APIGroupList", "groups": []}`} {
		synctest.Test(t, func(t *testing.T) {
			history := newHistory(t, 1)
			for range 40 {
				history.change()
			}
			history.run(kube.Settings{Hold: time.Minute, Derive: new(derive.Options)})
			history.rest()
			history.stop()
			history.Fault(kubetest.Discovery, kubetest.Fault{Status: http.StatusOK, Text: text})
			history.run(history.settings)
			time.Sleep(10 * time.Minute)
			history.rest()
		})
	}
}

// TestMissingKind_BeforeAndAfterOutage is missing for less than the hold, as when an API server starts again and
// again: the outages do not count.
func TestMissingKind_BeforeAndAfterOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		history := newHistory(t, 1)
		for range 40 {
			history.change()
		}
		history.run(kube.Settings{Hold: 2 * time.Minute, Derive: new(derive.Options)})
		history.rest()
		for range 3 {
			history.Hide(crds...)
			history.Down(false)
			time.Sleep(35 * time.Second) // it has looked
			history.Down(true)
			time.Sleep(2 * time.Minute)
		}
		history.Hide()
		history.holds()
		history.rest()
	})
}

// TestHold_WithWrongClock is as long as any, once the clock is right.
func TestHold_WithWrongClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHistory(t, 1)
		h.put(entries, "shop", "o0")
		h.run(kube.Settings{Hold: 5 * time.Minute})
		h.rest()
		h.Hide(entries)
		h.Disconnect()
		time.Sleep(time.Minute) // it has looked
		h.stop()
		h.locked(func() {
			h.out.rewind(0)
			h.Hide()
			h.Delete(entries, "shop", "o0")
			h.note()
		})
		h.run(h.settings)
		h.holds()
		h.rest()
	})
}

// TestAnotherAddressOfServices is read in the kubeconfig, though the source asks for no kinds of Istio.
func TestAnotherAddressOfServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		history := newHistory(t, 1)
		history.run(kube.Settings{Kinds: []string{kube.NoKinds}, Services: new(kube.Services)})
		history.rest()
		history.move()
		history.rest()
	})
}

// TestOutage_LongAfterCRDWasDeleted delays no kind.
func TestOutage_LongAfterCRDWasDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		history := newHistory(t, 1)
		history.put(grants, "shop", "o0")
		history.run(kube.Settings{Derive: new(derive.Options)})
		history.rest()
		history.locked(func() {
			history.Remove(grants)
			history.holds()
		})
		time.Sleep(10 * time.Minute)
		history.rest()
		history.stop()
		history.run(history.settings)
		time.Sleep(15 * time.Minute)
		history.rest()
		history.away(func() {
			ingress := content(history.ops, "Ingress")
			ingress["spec"].(object)["ingressClassName"] = "istio"
			history.Put("ingresses.networking.k8s.io", "shop", "o0", string(encode(ingress)))
		})
		history.rest()
	})
}

// TestNotFoundForAll has a server that is no API server, such as a proxy with another path: no kind counts as missing.
func TestNotFoundForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHistory(t, 1)
		for range 40 {
			h.change()
		}
		h.run(kube.Settings{Hold: time.Minute, Services: new(kube.Services), Derive: new(derive.Options)})
		h.rest()
		for _, resource := range []string{kubetest.Discovery, kubetest.Everything} {
			h.Fault(resource, kubetest.Fault{Status: http.StatusNotFound})
		}
		h.Disconnect()
		time.Sleep(10 * time.Minute)
		h.rest()
	})
}

// TestMissingKind_WithOtherNamespaces: its derived objects stay.
func TestMissingKind_WithOtherNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		history := newHistory(t, 1)
		for range 40 {
			history.change()
		}
		settings := kube.Settings{Hold: 5 * time.Minute, Derive: new(derive.Options)}
		history.run(settings)
		history.rest()
		history.stop()
		history.Hide("gateways.gateway.networking.k8s.io")
		settings.Namespaces = []string{"bank", "other", "shop"}
		history.run(settings)
		time.Sleep(50 * time.Second)
		history.Hide()
		history.holds()
		history.rest()
	})
}

// TestWatches_FailAtOnce, as while a webhook that converts objects is down, are tried again with pauses.
func TestWatches_FailAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		history := newHistory(t, 1)
		history.run(kube.Settings{Namespaces: []string{"bank", "shop"}})
		history.rest()
		for r := range rules {
			history.Fault(r, kubetest.Fault{Event: http.StatusInternalServerError})
		}
		history.Disconnect()
		history.Requests()
		time.Sleep(time.Minute)
		require.Less(t, len(history.Requests()), 1000)
		history.rest()
	})
}

// TestDiscoveryOfAStartingServer: for a moment, a server that has just started does not list its CRDs. No hold begins
// for that, and all kinds are followed soon after, also by a run that starts in that moment.
func TestDiscoveryOfAStartingServer(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		for _, moment := range []time.Duration{100 * time.Millisecond, time.Second, 3 * time.Second, 6 * time.Second, 9 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				h := newHistory(t, 1)
				for range 40 {
					h.change()
				}
				h.run(kube.Settings{Services: new(kube.Services), Derive: new(derive.Options)})
				h.rest()
				h.Hide(crds...)
				h.Disconnect()
				if restarts {
					h.stop()
					h.run(h.settings)
				}
				time.Sleep(moment)
				h.locked(func() {
					h.Hide()
					for r := range rules {
						h.put(r, "shop", "o9")
					}
					h.note()
				})
				h.slack = max(moment, 2*time.Second) + 11*time.Second // until the next look, and the longest pause between lists
				h.rest()
				require.NotContains(t, string(h.out.Kept()), "missing", "a hold began")
			})
		}
	}
}

// TestHold_EndsAtItsTime is when its objects go, not when the kinds are looked for the next time.
func TestHold_EndsAtItsTime(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			history := newHistory(t, 1)
			for range 40 {
				history.change()
			}
			history.put(grants, "shop", "o0")
			history.run(kube.Settings{Derive: new(derive.Options), Hold: 5 * time.Minute})
			history.rest()
			history.locked(func() {
				history.Remove(grants)
				history.note()
			})
			if restarts {
				history.stop()
				history.run(history.settings)
			}
			time.Sleep(5*time.Minute + 26*time.Second) // 10 s until the kind counts as missing, 15 s until the look after that
			require.Empty(t, history.lacks())
		})
	}
}
