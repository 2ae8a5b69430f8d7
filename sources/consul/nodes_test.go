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

// A token that is limited to some nodes has every answer filtered. What goes on a node that it may see has gone all the
// same.
func TestATokenLimitedToNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		both := newInstances(append(made("1", "mine", 5).list, made("2", "theirs", 6).list...))
		w := newWorld(t)
		w.change(local, func(f *fakeDomain) {
			f.nodes = map[string]bool{"mine": true}
			f.set("web", newInstances(append(both.list, made("3", "mine", 5).list...)))
			f.set("api", made("1", "mine", 5))
			f.set("db", made("1", "mine", 5))
		})
		w.start(Settings{}, 0)
		pass(10 * time.Second)
		require.Equal(t, []string{"/1", "/3"}, w.instancesOf("web"))
		require.Equal(t, sources.Healthy, w.health().State, w.health().Message)
		w.change(local, func(f *fakeDomain) { f.set("web", both); f.remove("api"); f.set("db", instances{}) })
		pass(20 * time.Second)
		require.Equal(t, []string{"/1"}, w.instancesOf("web"))
		require.Empty(t, w.instancesOf("api"))
		require.Empty(t, w.instancesOf("db"))
		pass(time.Minute)
		require.Empty(t, w.of("api"))
		w.change(local, func(f *fakeDomain) { f.nodes = map[string]bool{"other": true}; f.set("web", both) }) // now it may see less
		pass(time.Minute)
		require.Equal(t, []string{"/1"}, w.instancesOf("web"))
		require.NotEqual(t, sources.Healthy, w.health().State)
	})
}

// Instances come and go on nodes that do so, too, as with an autoscaler.
func TestNodesThatHaveGoneAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.change(local, twenty(0, 2, 50))
		r := w.start(Settings{}, 0)
		for i := range 400 {
			w.change(local, func(f *fakeDomain) { f.set("web", made("1", fmt.Sprintf("a%03d", i), uint64(100+i))) })
			pass(30 * time.Second)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		require.Less(t, len(r.scopes[0].nodes.accepted), 50, "three nodes have instances")
		require.Less(t, len(r.scopes[0].nodes.latest), 50)
		for _, node := range []string{"n0", "n1", "a399"} {
			require.Contains(t, r.scopes[0].nodes.accepted, node)
		}
	})
}

// However many nodes there are, each of them can be the one that tells of a wipe while tributary was away.
func TestEveryNodeIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.change(local, twenty(0, 20, 50))
		w.change(local, func(f *fakeDomain) { // a service on nodes that come first in order
			var all instances
			for i := range 300 {
				all = all.plus(made(fmt.Sprint(i), fmt.Sprintf("a%03d", i), 50).list)
			}
			f.set("big", all)
		})
		_, stop := w.begin(Settings{}, 0)
		pass(10 * time.Second)
		stop()
		w.outlive()
		w.change(local, func(f *fakeDomain) { f.wipe(); f.index = 500; twenty(0, 12, 490)(f) })
		w.start(Settings{}, 0)
		pass(2 * time.Minute)
		w.requireServed(0, 20)
	})
}

// A service that cannot be read is no witness, and neither is one that turns out to be that.
func TestAWitnessThatCannotBeRead(t *testing.T) {
	for what, before := range map[string]bool{"as is known": true, "as is found": false} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.change(local, twenty(0, 6, 50))
				odd := map[string]error{"..": api.StatusError{Code: 400, Body: "Missing service name"}}
				if before {
					w.change(local, func(f *fakeDomain) { f.set("..", at("1")) })
					w.odd = odd
				}
				w.start(Settings{}, 0)
				pass(time.Minute)
				require.Equal(t, sources.Healthy, w.health().State)
				w.change(local, func(f *fakeDomain) {
					f.remove("s04")
					f.remove("s05")
					if !before {
						f.set("..", at("1"))
						w.odd = odd
					}
				})
				pass(10 * time.Second)
				w.change(local, func(f *fakeDomain) { f.set("new", at("1")) })
				pass(time.Minute)
				require.Equal(t, []string{"/1"}, w.instancesOf("new"), w.health().Message)
				w.requireServed(0, 4)
				require.Empty(t, w.of("s04"))
			})
		})
	}
}

// One service whose answer is always a 503 is in trouble alone, also when two others go.
func TestASickServiceDoesNotHoldUpTheNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.change(local, twenty(0, 20, 50))
		w.start(Settings{}, 0)
		pass(10 * time.Second)
		w.mu.Lock()
		w.odd = map[string]error{"s00": api.StatusError{Code: 503, Body: "upstream"}}
		w.mu.Unlock()
		w.change(local, func(f *fakeDomain) { f.set("s00", made("2", "n0", 50)) })
		pass(time.Minute)
		require.Equal(t, sources.Degraded, w.health().State)
		w.change(local, func(f *fakeDomain) { f.remove("s18"); f.remove("s19") })
		pass(10 * time.Second)
		w.change(local, twenty(20, 21, 50))
		pass(time.Hour)
		w.requireServed(1, 18)
		require.Equal(t, []string{"/1"}, w.instancesOf("s20"), "registered an hour ago")
	})
}

// Consul was wiped in an outage, overtook its index, and all services but one are back: their nodes were made anew.
func TestTheLastServiceThatIsNotBackAfterAWipeThatOvertook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for what, back := range map[string]int{"two are not back": 18, "one is not back": 19} {
			w := newWorld(t)
			w.change(local, twenty(0, 20, 50))
			_, stop := w.begin(Settings{}, 0)
			pass(10 * time.Second)
			w.change(local, func(f *fakeDomain) { f.fails = errDown })
			pass(5 * time.Second)
			w.change(local, func(f *fakeDomain) { f.fails = nil; f.wipe(); f.index = 500; twenty(0, back, 400)(f) })
			pass(time.Minute)
			w.requireServed(0, 20)
			require.Equal(t, sources.Degraded, w.health().State, what)
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
		s.applyAnswer(reading{Answer: judge.Answer{Index: index, Confirming: true}, instances: i}, begin.Add(after))
	}
	both := func(created uint64) instances { return made("1", "n1", created).plus(made("2", "n2", created).list) }
	answer(0, both(10))
	answer(time.Second, made("1", "n1", 30))
	require.Equal(t, begin.Add(61*time.Second), p.suspicion.End)
	answer(20*time.Second, both(30))
	require.Equal(t, begin.Add(61*time.Second), p.suspicion.End, "nodes that come back are no second loss")
	answer(50*time.Second, made("1", "n1", 40))
	require.Equal(t, begin.Add(110*time.Second), p.suspicion.End)
	require.Len(t, s.instances.list, 2)
}
