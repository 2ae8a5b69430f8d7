package kube

import (
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/derive"
	"tributary/sources/kube/kubetest"
	"tributary/sources/presence"
)

const apiGrants = "referencegrants.gateway.networking.k8s.io"

// TestRestartDuringHold_FollowsListedObjects: each row begins a hold, some before the restart and some during it. A
// route that is listed then is served at once.
func TestRestartDuringHold_FollowsListedObjects(t *testing.T) {
	t.Parallel()
	var restarted int
	for name, row := range map[string]struct {
		before func(r *rig, saved int)
		during func(server *kubetest.Server, saved int)
		says   string
	}{
		"a CRD is missing and comes back without its objects": {
			before: func(r *rig, _ int) { r.server.Remove(apiRoutes) },
			during: func(server *kubetest.Server, _ int) {
				server.Serve(apiRoutes)
			},
			says: apiRoutes + ": 1 object is held until ",
		},
		"a restore loses a route": {
			before: func(r *rig, saved int) { r.server.Restore(saved) },
			says:   "1 object is held until ",
		},
		"a restore during the restart loses no object": {
			before: func(r *rig, _ int) {
				put(r.server, 1, "m")
				restarted = r.server.Version()
				for i := range 9 {
					put(r.server, i, "m")
				}
				r.Await("all changes", func() bool { return r.ports()["m"] == 88 })
			},
			during: func(server *kubetest.Server, _ int) { server.Restore(restarted) },
		},
		"a restore during the restart brings an object back": {
			during: func(server *kubetest.Server, saved int) {
				server.Restore(saved)
				putRoute(server, "web", "web.example.com")
			},
		},
		"the CRD of a kind without objects goes during the restart": {
			during: func(server *kubetest.Server, _ int) { server.Remove(apiGrants) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := gatewayAPI(t)
			server.Serve(apiGrants)
			server.Put(apiGrants, "edge", "g", "spec: {}")
			server.Delete(apiRoutes, "edge", "web")
			saved := server.Version()
			server.Delete(apiGrants, "edge", "g")
			putRoute(server, "web", "web.example.com")
			source := func() *Source { return quick(t, server, Settings{Derive: &derive.Options{}, Hold: time.Hour}) }
			r := start(t, server, source()).synced()
			r.awaitVirtualServices(1)
			if row.before != nil {
				row.before(r, saved)
			}
			if row.says != "" {
				r.AwaitState(sources.Degraded, row.says)
			}
			r.Replace(source(), func() {
				if row.during != nil {
					row.during(server, saved)
				}
			})
			putRoute(server, "shop", "shop.example.com")
			r.awaitVirtualServices(2)
			r.requireNoDeletion()
		})
	}
}

// TestServicesOfOtherNamespaces are followed while a restored cluster lacks an EndpointSlice, and the status tells
// which objects wait.
func TestServicesOfOtherNamespaces(t *testing.T) {
	server := istioServer(t, "services", "nodes", apiSlices)
	service := func(namespace, name string) {
		server.Put("services", namespace, name, "spec: {ports: [{port: 80}]}")
	}
	service("bank", "web")
	service("shop", "web")
	saved := server.Version()
	for range 5 { // so that the restored server is behind
		server.Put("nodes", "", "n", "")
	}
	putSlice(server, "bank", "web-1", "")
	source := func() *Source { return quick(t, server, Settings{Hold: time.Hour, Services: new(Services)}) }
	rig := start(t, server, source()).synced()
	endpoints := func() int { return strings.Count(rig.text("bank", "web"), "- address: ") }
	rig.Await("the endpoint", func() bool { return len(rig.served()) == 2 && endpoints() == 1 })
	rig.Replace(source(), func() { server.Restore(saved) })
	service("shop", "api")
	rig.serves("ServiceEntry bank/web.bank.svc", "ServiceEntry shop/api.shop.svc", "ServiceEntry shop/web.shop.svc")
	rig.AwaitState(sources.Degraded, apiSlices+": 1 object is held until ")
	rig.AwaitState(sources.Degraded, "until then, objects made from 1 of them are not updated")
	require.Equal(t, 1, endpoints())
	service("bank", "new")
	service("shop", "last")
	rig.awaitServed("last")
	require.Equal(t, 1, endpoints())
}

// TestTimeline has a kind with an etcd of its own, and a deletion during a hold.
func TestTimeline(t *testing.T) {
	const settle, hold = 10 * time.Second, time.Minute
	now := time.Now()
	for _, apart := range []bool{false, true} {
		services := &cache{hasList: true, seen: 960}
		services.objects = presence.Set[uint64]{"kept": {Value: 900}, "lost": {Value: 960}}
		rules := &cache{objects: presence.Set[uint64]{"r": {Value: 1000}}, hasList: true, seen: 1000}
		kinds := timeline{services, rules}
		apply := func(after time.Duration, from, version uint64, listed map[string]uint64) (int, error) {
			answer := list{from, version, maps.Clone(listed)}
			missing, err := services.checkList(kinds, now.Add(after), answer, settle, hold)
			return len(missing), err
		}
		listed := map[string]uint64{"kept": 900}
		if !apart {
			kinds.holdRestored(rules, 970, now, hold)
			missing, err := apply(0, 970, 971, listed)
			require.NoError(t, err)
			require.Zero(t, missing, "lost is in doubt")
			missing, err = apply(0, 970, 972, nil)
			require.NoError(t, err)
			require.Equal(t, 1, missing, "kept was listed after the restore")
			continue
		}
		_, err := apply(0, 1000, 970, listed)
		require.ErrorIs(t, err, errOlder)
		rules.seen, rules.confirmedAt = 1001, now.Add(time.Second)
		missing, err := apply(settle, 1001, 971, listed)
		require.NoError(t, err)
		require.Equal(t, 1, missing)
		require.EqualValues(t, 1001, rules.seen)
		_, err = apply(settle, 2000, 972, listed)
		require.NoError(t, err)
	}
}

// TestRestore_ReusesAResourceVersion restores a cluster that then gives the resource version of a lost change to
// another change of the same object, and is soon ahead of all versions before.
func TestRestore_ReusesAResourceVersion(t *testing.T) {
	server := istioServer(t)
	put(server, 1, "a")
	saved := server.Version()
	source := quick(t, server, Settings{Hold: time.Hour})
	source.maxWatch = time.Hour
	rig := start(t, server, source).synced()
	put(server, 2, "a")
	rig.Await("the change", func() bool { return rig.ports()["a"] == 82 })
	server.Down(true)
	server.Restore(saved)
	put(server, 3, "a")
	putVirtuals(server, 5)
	server.Down(false)
	rig.Await("the change after the restore", func() bool { return rig.ports()["a"] == 83 })
}

// TestRestore_SeenByOneBrokenWatch: a restore adds or removes an object, and the server soon passes the version
// that was seen before. Only one broken watch shows it.
func TestRestore_SeenByOneBrokenWatch(t *testing.T) {
	for _, watches := range []string{"break", "end early"} {
		t.Run("an object comes back, watches "+watches, func(t *testing.T) {
			server := istioServer(t)
			put(server, 1, "a", "b")
			saved := server.Version()
			source := quick(t, server, Settings{Hold: time.Hour})
			source.maxWatch = time.Hour
			if watches == "end early" {
				source.cluster.url = front(t, server, func(http.ResponseWriter, *http.Request) bool { return false })
			}
			rig := start(t, server, source).synced()
			server.Delete(entries, "shop", "a")
			rig.serves("ServiceEntry shop/b")
			server.Down(watches == "break")
			server.Restore(saved)
			putVirtuals(server, 5)
			server.Down(false)
			rig.awaitServed("shop/a")
		})
	}
}

// TestResync: a list shows changes that the watches of a server never send.
func TestResync(t *testing.T) {
	t.Parallel()
	server := istioServer(t)
	put(server, 1, "a")
	server.Fault(entries, kubetest.Fault{Silent: true})
	s := quick(t, server, Settings{})
	s.maxWatch = time.Second
	r := start(t, server, s).synced()
	require.Equal(t, map[string]int{"a": 81}, r.ports())
	put(server, 2, "a")
	r.Await("the change", func() bool { return r.ports()["a"] == 82 })
}
