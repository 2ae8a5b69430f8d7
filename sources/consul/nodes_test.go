package consul

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/consul/judge"
)

// A token that is limited to some nodes has every answer filtered. A removal on a visible node counts nevertheless.
func TestTokenLimitedToNodes_SeesRemovals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		visibleAndHidden := newInstances(append(instanceOnNode("1", "mine", 5).list, instanceOnNode("2", "theirs", 6).list...))
		w := newWorld(t)
		w.change(local, func(f *fakeDomain) {
			f.nodes = map[string]bool{"mine": true}
			f.set("web", newInstances(append(visibleAndHidden.list, instanceOnNode("3", "mine", 5).list...)))
			f.set("api", instanceOnNode("1", "mine", 5))
			f.set("db", instanceOnNode("1", "mine", 5))
		})
		w.start(Settings{}, 0)
		pass(10 * time.Second)
		require.Equal(t, []string{"/1", "/3"}, w.instancesOf("web"))
		require.Equal(t, sources.Healthy, w.health().State, w.health().Message)
		w.change(local, func(f *fakeDomain) { f.set("web", visibleAndHidden); f.remove("api"); f.set("db", instances{}) })
		pass(20 * time.Second)
		require.Equal(t, []string{"/1"}, w.instancesOf("web"))
		require.Empty(t, w.instancesOf("api"))
		require.Empty(t, w.instancesOf("db"))
		pass(time.Minute)
		require.Empty(t, w.lastPublished("api"))
		w.change(local, func(f *fakeDomain) { f.nodes = map[string]bool{"other": true}; f.set("web", visibleAndHidden) }) // now it may see less
		pass(time.Minute)
		require.Equal(t, []string{"/1"}, w.instancesOf("web"))
		require.NotEqual(t, sources.Healthy, w.health().State)
	})
}

// Instances come and go on nodes that do so, too, as with an autoscaler.
func TestRemovedNodes_FreeState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.change(local, twenty(0, 2, 50))
		run := w.start(Settings{}, 0)
		for i := range 400 {
			w.change(local, func(f *fakeDomain) { f.set("web", instanceOnNode("1", fmt.Sprintf("a%03d", i), uint64(100+i))) })
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
	synctest.Test(t, func(t *testing.T) {
		world := newWorld(t)
		world.change(local, twenty(0, 20, 50))
		world.change(local, func(f *fakeDomain) { // a service on nodes that come first in order
			var registrations instances
			for i := range 300 {
				registrations = registrations.plus(instanceOnNode(fmt.Sprint(i), fmt.Sprintf("a%03d", i), 50).list)
			}
			f.set("big", registrations)
		})
		_, stop := world.begin(Settings{}, 0)
		pass(10 * time.Second)
		stop()
		world.outlive()
		world.change(local, func(f *fakeDomain) { f.wipe(); f.index = 500; twenty(0, 12, 490)(f) })
		world.start(Settings{}, 0)
		pass(2 * time.Minute)
		world.requireServed(0, 20)
	})
}

// A service that cannot be read is no witness, and neither is one that turns out to be that.
func TestUnreadableService_ProvesNoLoss(t *testing.T) {
	for name, before := range map[string]bool{"as is known": true, "as is found": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				world := newWorld(t)
				world.change(local, twenty(0, 6, 50))
				odd := map[string]error{"..": api.StatusError{Code: 400, Body: "Missing service name"}}
				if before {
					world.change(local, func(f *fakeDomain) { f.set("..", instanceWithID("1")) })
					world.odd = odd
				}
				world.start(Settings{}, 0)
				pass(time.Minute)
				require.Equal(t, sources.Healthy, world.health().State)
				world.change(local, func(f *fakeDomain) {
					f.remove("s04")
					f.remove("s05")
					if !before {
						f.set("..", instanceWithID("1"))
						world.odd = odd
					}
				})
				pass(10 * time.Second)
				world.change(local, func(f *fakeDomain) { f.set("new", instanceWithID("1")) })
				pass(time.Minute)
				require.Equal(t, []string{"/1"}, world.instancesOf("new"), world.health().Message)
				world.requireServed(0, 4)
				require.Empty(t, world.lastPublished("s04"))
			})
		})
	}
}

// A service with reads that always fail with a 503 is held alone, also when two others go.
func TestFailingService_DoesNotBlockNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world := newWorld(t)
		world.change(local, twenty(0, 20, 50))
		world.start(Settings{}, 0)
		pass(10 * time.Second)
		world.mu.Lock()
		world.odd = map[string]error{"s00": api.StatusError{Code: 503, Body: "upstream"}}
		world.mu.Unlock()
		world.change(local, func(f *fakeDomain) { f.set("s00", instanceOnNode("2", "n0", 50)) })
		pass(time.Minute)
		require.Equal(t, sources.Degraded, world.health().State)
		world.change(local, func(f *fakeDomain) { f.remove("s18"); f.remove("s19") })
		pass(10 * time.Second)
		world.change(local, twenty(20, 21, 50))
		pass(time.Hour)
		world.requireServed(1, 18)
		require.Equal(t, []string{"/1"}, world.instancesOf("s20"), "registered an hour ago")
	})
}

// Consul was wiped in an outage, overtook its index, and every service but one is back on newly created nodes.
func TestLastMissingService_HeldAfterWipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, back := range map[string]int{"two are not back": 18, "one is not back": 19} {
			world := newWorld(t)
			world.change(local, twenty(0, 20, 50))
			_, stop := world.begin(Settings{}, 0)
			pass(10 * time.Second)
			world.change(local, func(f *fakeDomain) { f.fails = errDown })
			pass(5 * time.Second)
			world.change(local, func(f *fakeDomain) { f.fails = nil; f.wipe(); f.index = 500; twenty(0, back, 400)(f) })
			pass(time.Minute)
			world.requireServed(0, 20)
			require.Equal(t, sources.Degraded, world.health().State, name)
			stop()
		}
	})
}

// TestNodes_SecondLossRenewsHold has Consul lose its data again during the hold of the first loss.
func TestNodes_SecondLossRenewsHold(t *testing.T) {
	p := &catalogScope{resetHold: time.Minute, nodes: newNodes()}
	s := &service{name: "web", scope: p, listed: true}
	begin := time.Now()
	var index uint64
	answer := func(after time.Duration, i instances) {
		index++
		s.applyAnswer(reading{Answer: judge.Answer{Index: index, Confirmed: true}, instances: i}, begin.Add(after))
	}
	instancesCreatedAt := func(created uint64) instances {
		return instanceOnNode("1", "n1", created).plus(instanceOnNode("2", "n2", created).list)
	}
	answer(0, instancesCreatedAt(10))
	answer(time.Second, instanceOnNode("1", "n1", 30))
	require.Equal(t, begin.Add(61*time.Second), p.suspicion.End)
	answer(20*time.Second, instancesCreatedAt(30))
	require.Equal(t, begin.Add(61*time.Second), p.suspicion.End, "nodes that come back are no second loss")
	answer(50*time.Second, instanceOnNode("1", "n1", 40))
	require.Equal(t, begin.Add(110*time.Second), p.suspicion.End)
	require.Len(t, s.instances.list, 2)
}
