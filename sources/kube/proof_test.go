package kube_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources/derive"
	"tributary/sources/kube"
	"tributary/sources/kube/kubetest"
)

// atRest runs a test of a source that has published a cluster after some changes.
func atRest(t *testing.T, changes int, settings kube.Settings, test func(t *testing.T, h *history)) {
	synctest.Test(t, func(t *testing.T) {
		h := newHistory(t, 1)
		for range changes {
			h.change()
		}
		h.run(settings)
		h.rest()
		test(t, h)
	})
}

// TestDiscovery_WrongAnswers are no proof that the cluster has no such kind, as of a proxy that answers {} to all.
func TestDiscovery_WrongAnswers(t *testing.T) {
	for _, text := range []string{"{}", "null", `{"kind": "Status", "status": "Success"}`, `{"kind": "APIGroupList", "groups": []}`} {
		atRest(t, 40, kube.Settings{Hold: time.Minute, Derive: new(derive.Options)}, func(_ *testing.T, h *history) {
			h.stop()
			h.Fault(kubetest.Discovery, kubetest.Fault{Status: http.StatusOK, Text: text})
			h.run(h.settings)
			time.Sleep(10 * time.Minute)
			h.rest()
		})
	}
}

// TestMissingKind_BeforeAndAfterOutage is missing for less than the hold, as when an API server starts again and
// again: the outages do not count.
func TestMissingKind_BeforeAndAfterOutage(t *testing.T) {
	atRest(t, 40, kube.Settings{Hold: 2 * time.Minute, Derive: new(derive.Options)}, func(_ *testing.T, h *history) {
		for range 3 {
			h.Hide(crds...)
			h.Down(false)
			time.Sleep(35 * time.Second) // it has looked
			h.Down(true)
			time.Sleep(2 * time.Minute)
		}
		h.Hide()
		h.holds()
		h.rest()
	})
}

// TestHold_WithWrongClock is as long as any, once the clock is right.
func TestHold_WithWrongClock(t *testing.T) {
	atRest(t, 0, kube.Settings{Hold: 5 * time.Minute}, func(_ *testing.T, h *history) {
		h.write(entries, "shop", "o0")
		h.rest()
		h.locked(func() {
			h.Remove(entries)
			h.note()
		})
		time.Sleep(time.Minute) // it has looked
		h.stop()
		h.locked(func() { h.out.rewind(0) })
		h.run(h.settings)
		h.holds()
		h.rest()
	})
}

// TestAnotherAddressOfServices is read in the kubeconfig, though the source asks for no kinds of Istio.
func TestAnotherAddressOfServices(t *testing.T) {
	settings := kube.Settings{Kinds: []string{kube.NoKinds}, Services: new(kube.Services)}
	atRest(t, 0, settings, func(_ *testing.T, h *history) {
		h.move()
		h.rest()
	})
}

// TestOutage_LongAfterCRDWasDeleted delays no kind.
func TestOutage_LongAfterCRDWasDeleted(t *testing.T) {
	atRest(t, 0, kube.Settings{Derive: new(derive.Options)}, func(_ *testing.T, h *history) {
		h.write(grants, "shop", "o0")
		h.rest()
		h.Remove(grants)
		h.holds()
		time.Sleep(10 * time.Minute)
		h.rest()
		h.stop()
		h.run(h.settings)
		time.Sleep(15 * time.Minute)
		h.rest()
		h.away(func() {
			ingress := strings.Replace(content(h.ops, "Ingress"), "ingressClassName: other", "ingressClassName: istio", 1)
			h.Put("ingresses.networking.k8s.io", "shop", "o0", ingress)
		})
		h.rest()
	})
}

// TestNotFoundForAll has a server that is no API server, such as a proxy with another path: no kind counts as missing.
func TestNotFoundForAll(t *testing.T) {
	settings := kube.Settings{Hold: time.Minute, Services: new(kube.Services), Derive: new(derive.Options)}
	atRest(t, 40, settings, func(_ *testing.T, h *history) {
		h.Fault(kubetest.Discovery, kubetest.Fault{Status: http.StatusNotFound})
		h.Fault(kubetest.Everything, kubetest.Fault{Status: http.StatusNotFound})
		h.Disconnect()
		time.Sleep(10 * time.Minute)
		h.rest()
	})
}

// TestMissingKind_WithOtherNamespaces: its derived objects stay.
func TestMissingKind_WithOtherNamespaces(t *testing.T) {
	settings := kube.Settings{Hold: 5 * time.Minute, Derive: new(derive.Options)}
	atRest(t, 40, settings, func(_ *testing.T, h *history) {
		h.stop()
		h.Hide("gateways.gateway.networking.k8s.io")
		settings.Namespaces = []string{"bank", "other", "shop"}
		h.run(settings)
		time.Sleep(50 * time.Second)
		h.Hide()
		h.holds()
		h.rest()
	})
}

// TestWatches_FailAtOnce, as while a webhook that converts objects is down, are tried again with pauses.
func TestWatches_FailAtOnce(t *testing.T) {
	atRest(t, 0, kube.Settings{Namespaces: []string{"bank", "shop"}}, func(t *testing.T, h *history) {
		for resource := range rules {
			h.Fault(resource, kubetest.Fault{Event: http.StatusInternalServerError})
		}
		h.Disconnect()
		h.Requests()
		time.Sleep(time.Minute)
		require.Less(t, len(h.Requests()), 1000)
		h.rest()
	})
}

// TestDiscoveryOfAStartingServer: for a moment, a server that has just started does not list its CRDs. No hold begins
// for that, and all kinds are followed soon after, also by a run that starts in that moment.
func TestDiscoveryOfAStartingServer(t *testing.T) {
	settings := kube.Settings{Services: new(kube.Services), Derive: new(derive.Options)}
	for _, restarts := range []bool{false, true} {
		for _, moment := range []time.Duration{100 * time.Millisecond, time.Second, 3 * time.Second, 6 * time.Second, 9 * time.Second} {
			atRest(t, 40, settings, func(t *testing.T, h *history) {
				h.Hide(crds...)
				h.Disconnect()
				if restarts {
					h.stop()
					h.run(h.settings)
				}
				time.Sleep(moment)
				h.locked(func() {
					h.Hide()
					for resource := range rules {
						h.put(resource, "shop", "o9")
					}
					h.note()
				})
				h.slack = max(moment, 2*time.Second) + 11*time.Second // until the next look, and the longest pause between lists
				h.rest()
				require.NotContains(t, string(h.out.LastNote()), "missing", "a hold began")
			})
		}
	}
}

// TestHold_EndsAtItsTime is when its objects go, not when the kinds are looked for the next time.
func TestHold_EndsAtItsTime(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		atRest(t, 40, kube.Settings{Derive: new(derive.Options), Hold: 5 * time.Minute}, func(t *testing.T, h *history) {
			h.write(grants, "shop", "o0")
			h.rest()
			h.locked(func() {
				h.Remove(grants)
				h.note()
			})
			if restarts {
				h.stop()
				h.run(h.settings)
			}
			time.Sleep(5*time.Minute + 26*time.Second) // 10 s until the kind counts as missing, 15 s until the look after that
			require.Empty(t, h.lacks())
		})
	}
}

// TestHold_EndsThoughServerFlaps has an API server without a CRD that is away for a few seconds, more often than the
// hold lasts. The objects of the kind go after the hold, in which outages do not count.
func TestHold_EndsThoughServerFlaps(t *testing.T) {
	settings := kube.Settings{Hold: 5 * time.Minute, Kinds: []string{"VirtualService", "ServiceEntry"}}
	for _, restarts := range []bool{false, true} {
		atRest(t, 0, settings, func(t *testing.T, h *history) {
			h.write(entries, "shop", "web")
			h.rest()
			h.locked(func() {
				h.lax = true
				h.Remove(entries)
				h.note()
			})
			time.Sleep(30 * time.Second)
			up := 30 * time.Second
			for ; up < 20*time.Minute && len(h.out.Groups()) > 0; up += 2 * time.Minute {
				h.Down(true)
				time.Sleep(5 * time.Second)
				if restarts {
					h.stop()
					h.run(settings)
					time.Sleep(5 * time.Second)
				}
				h.Down(false)
				time.Sleep(2 * time.Minute)
			}
			require.Empty(t, h.out.Groups(), "after the server was there for %s", up)
			require.GreaterOrEqual(t, up, 4*time.Minute)
		})
	}
}
