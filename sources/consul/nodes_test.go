package consul

import (
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/consul/consultest"
	"tributary/sources/consul/judge"
)

// A token that is limited to some nodes has every answer filtered. A removal on a visible node counts nevertheless.
func TestTokenLimitedToNodes_SeesRemovals(t *testing.T) {
	testWorld(t, func(t *testing.T, w *world) {
		visibleAndHidden := consultest.Instances("1 mine 5", "2 theirs 6")
		w.Change(func() {
			w.Nodes = map[string]bool{"mine": true}
			w.List("web", "1 mine 5", "2 theirs 6", "3 mine 5")
			w.List("api", "1 mine 5")
			w.List("db", "1 mine 5")
		})
		w.start()
		pass(10 * time.Second)
		w.requireInstances("web", "1", "3")
		w.requireState(sources.Healthy)
		w.Put("web", visibleAndHidden...)
		w.Remove("api")
		w.set("db")
		pass(20 * time.Second)
		w.requireInstances("web", "1")
		w.requireInstances("api")
		w.requireInstances("db")
		pass(time.Minute)
		w.requireWithdrawn("api")
		w.Change(func() { w.Nodes = map[string]bool{"other": true}; w.SetService("web", visibleAndHidden) }) // now it may see less
		pass(time.Minute)
		w.requireInstances("web", "1")
		require.NotEqual(t, sources.Healthy, w.health().State)
	})
}

// Instances come and go on nodes that do so, too, as with an autoscaler.
func TestRemovedNodes_FreeState(t *testing.T) {
	testWorld(t, func(t *testing.T, w *world) {
		w.change(local, twenty(0, 2, 50))
		run := w.start()
		for i := range 400 {
			w.Put("web", instanceOnNode("1", fmt.Sprintf("a%03d", i), uint64(100+i))...)
			pass(30 * time.Second)
		}
		run.mu.Lock()
		defer run.mu.Unlock()
		require.Less(t, len(run.scopes[0].nodes.accepted), 50, "three nodes have instances")
		require.Less(t, len(run.scopes[0].nodes.latest), 50)
		for _, node := range []string{"n0", "n1", "a399"} {
			require.Contains(t, run.scopes[0].nodes.accepted, node)
		}
	})
}

// However many nodes there are, each of them can be the one that tells of a wipe while tributary was away.
func TestNodeRecords_Complete(t *testing.T) {
	testWorld(t, func(t *testing.T, world *world) {
		world.change(local, twenty(0, 20, 50))
		world.Change(func() { // a service on nodes that come first in order
			var registrations []*api.ServiceEntry
			for i := range 300 {
				registrations = append(registrations, instanceOnNode(fmt.Sprint(i), fmt.Sprintf("a%03d", i), 50)...)
			}
			world.SetService("big", registrations)
		})
		world.start()
		pass(10 * time.Second)
		world.stop()
		world.wipe(500, twenty(0, 12, 490))
		world.start()
		pass(2 * time.Minute)
		world.requireServed(0, 20)
	})
}

// A service that cannot be read is no witness, and neither is one that turns out to be that.
func TestUnreadableService_ProvesNoLoss(t *testing.T) {
	eachWorld(t, map[string]bool{
		"as is known": true, "as is found": false,
	}, func(t *testing.T, world *world, before bool) {
		world.change(local, twenty(0, 6, 50))
		odd := map[string]error{"..": api.StatusError{Code: 400, Body: "Missing service name"}}
		if before {
			world.Change(func() { world.List("..", "1"); world.Refusals = odd })
		}
		world.start()
		pass(time.Minute)
		world.requireState(sources.Healthy)
		world.Change(func() {
			world.RemoveService("s04")
			world.RemoveService("s05")
			if !before {
				world.List("..", "1")
				world.Refusals = odd
			}
		})
		pass(10 * time.Second)
		world.set("new", "1")
		pass(time.Minute)
		world.requireInstances("new", "1")
		world.requireServed(0, 4)
		world.requireWithdrawn("s04")
	})
}

// A service with reads that always fail with a 503 is held alone, also when two others go.
func TestFailingService_DoesNotBlockNames(t *testing.T) {
	testWorld(t, func(t *testing.T, world *world) {
		world.startFull()
		world.Change(func() {
			world.Refusals = map[string]error{"s00": api.StatusError{Code: 503, Body: "upstream"}}
			world.List("s00", "2 n0 50")
		})
		pass(time.Minute)
		world.requireState(sources.Degraded)
		world.Remove("s18")
		world.Remove("s19")
		pass(10 * time.Second)
		world.change(local, twenty(20, 21, 50))
		pass(time.Hour)
		world.requireServed(1, 18)
		world.requireInstances("s20", "1") // registered an hour ago
	})
}

// Consul was wiped in an outage, overtook its index, and every service but one is back on newly created nodes.
func TestLastMissingService_HeldAfterWipe(t *testing.T) {
	eachWorld(t, map[string]int{
		"two are not back": 18, "one is not back": 19,
	}, func(_ *testing.T, w *world, back int) {
		w.startFull()
		w.Fail(errDown)
		pass(5 * time.Second)
		w.wipe(500, twenty(0, back, 400))
		pass(time.Minute)
		w.requireServed(0, 20)
		w.requireState(sources.Degraded)
	})
}

// TestNodes_SecondLossRenewsHold has Consul lose its data again during the hold of the first loss.
func TestNodes_SecondLossRenewsHold(t *testing.T) {
	p := &catalogScope{resetHold: time.Minute, nodes: newNodes()}
	s := &service{name: "web", scope: p, nameState: nameListed}
	begin := time.Now()
	var index uint64
	answer := func(after time.Duration, texts ...string) {
		index++
		answer := judge.Answer{Index: index, Confirmed: true}
		s.applyAnswer(serviceAnswer{Answer: answer, instances: webInstances(texts...)}, begin.Add(after))
	}
	answer(0, "1 n1 10", "2 n2 10")
	answer(time.Second, "1 n1 30")
	require.Equal(t, begin.Add(61*time.Second), p.suspicion.End)
	answer(20*time.Second, "1 n1 30", "2 n2 30")
	require.Equal(t, begin.Add(61*time.Second), p.suspicion.End, "nodes that come back are no second loss")
	answer(50*time.Second, "1 n1 40")
	require.Equal(t, begin.Add(110*time.Second), p.suspicion.End)
	require.Len(t, s.instances.list, 2)
}
