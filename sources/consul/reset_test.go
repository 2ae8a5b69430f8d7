package consul

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/consul/dial"
	"tributary/sources/consul/judge"
	"tributary/sources/presence"
)

// twenty fills a domain with services of the numbers from one to another, each on one of two nodes.
func twenty(from, to int, index uint64) func(*fakeDomain) {
	return func(f *fakeDomain) {
		for i := from; i < to; i++ {
			f.set(fmt.Sprintf("s%02d", i), instanceOnNode("1", fmt.Sprint("n", i%2), index+uint64(i%2)))
		}
	}
}

// requireServed checks that services are served with their instance.
func (w *world) requireServed(from, to int) {
	w.t.Helper()
	for i := from; i < to; i++ {
		require.Equal(w.t, []string{"/1"}, w.instancesOf(fmt.Sprintf("s%02d", i)), i)
	}
}

func TestSuspicion_PersistsAcrossRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.change(local, twenty(0, 20, 50))
		_, stop := w.begin(Settings{}, 0)
		pass(10 * time.Second)
		w.change(local, func(f *fakeDomain) { f.wipe() })
		pass(10 * time.Second)
		w.change(local, twenty(0, 12, 3))
		pass(10 * time.Second)
		w.requireServed(0, 20)
		for range 3 { // it is restarted again and again
			stop()
			w.outlive()
			_, stop = w.begin(Settings{}, 0)
			pass(time.Minute)
			w.requireServed(0, 20)
			require.Equal(t, sources.Degraded, w.health().State)
			require.Contains(t, w.health().Message, "lost its data")
			require.True(t, w.synced())
		}
		pass(5 * time.Minute)
		w.requireServed(0, 12)
		for i := 12; i < 20; i++ {
			require.Empty(t, w.lastPublished(fmt.Sprintf("s%02d", i)), "services that did not come back are removed")
		}
		require.Equal(t, sources.Healthy, w.health().State)
		stop()
	})
}

// Consul loses its data while the source is stopped, and some agents register their services again before the start.
func TestWipeDuringRestart_HoldsServices(t *testing.T) {
	for name, index := range map[string]uint64{"at an older index": 20, "at a higher index": 500} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.change(local, twenty(0, 20, 50))
				_, stop := w.begin(Settings{}, 0)
				pass(10 * time.Second)
				stop()
				w.outlive()
				w.change(local, func(f *fakeDomain) { f.wipe(); f.index = index; twenty(0, 12, index-10)(f) })
				w.start(Settings{}, 0)
				pass(2 * time.Minute)
				w.requireServed(0, 20)
				require.Equal(t, sources.Degraded, w.health().State)
				w.change(local, twenty(12, 20, index))
				pass(20 * time.Second)
				w.requireServed(0, 20)
				pass(10 * time.Minute)
				w.requireServed(0, 20)
				require.Equal(t, sources.Healthy, w.health().State, w.health().Message)
			})
		})
	}
}

// Other settings select other services: that is no loss of data.
func TestChangedSettings_RaiseNoSuspicion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.change(local, twenty(0, 20, 50))
		_, stop := w.begin(Settings{}, 0)
		pass(10 * time.Second)
		stop()
		w.outlive()
		w.change(local, func(f *fakeDomain) {
			for i := 2; i < 20; i++ {
				f.remove(fmt.Sprintf("s%02d", i)) // as a filter does
			}
		})
		w.start(Settings{Filter: "ServiceMeta.mesh == yes"}, 0)
		pass(2 * time.Minute)
		require.Equal(t, sources.Healthy, w.health().State)
		w.requireServed(0, 2)
		require.Empty(t, w.lastPublished("s02"))
	})
}

// The index alone does not show that Consul lost its data: that of a young one is overtaken soon.
func TestWipeWithHigherIndex_Detected(t *testing.T) {
	for name, outage := range map[string]bool{"in an outage": true, "behind an agent that hid it": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.change(local, twenty(0, 20, 50))
				w.start(Settings{}, 0)
				pass(10 * time.Second)
				if outage {
					w.change(local, func(f *fakeDomain) { f.fails = errDown })
					pass(5 * time.Second)
				}
				w.change(local, func(f *fakeDomain) { f.fails = nil; f.wipe(); f.index = 500; twenty(0, 11, 400)(f) })
				pass(time.Minute)
				w.requireServed(0, 20)
				require.Equal(t, sources.Degraded, w.health().State)
				pass(10 * time.Minute)
				w.requireServed(0, 11)
				require.Empty(t, w.lastPublished("s11"))
			})
		})
	}
}

// Of a service that is on several nodes one node is back, and the names are all there.
func TestWipeWithCompleteNames_HoldsInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		instancesCreatedAt := func(a, b uint64) instances {
			return newInstances(append(instanceOnNode("1", "n0", a).list, instanceOnNode("2", "n1", b).list...))
		}
		w := newWorld(t)
		w.change(local, func(f *fakeDomain) {
			f.set("web", instancesCreatedAt(50, 51))
			f.set("api", instanceOnNode("1", "n0", 50))
		})
		w.start(Settings{}, 0)
		pass(10 * time.Second)
		w.change(local, func(f *fakeDomain) {
			f.wipe()
			f.index = 500
			f.set("web", instanceOnNode("1", "n0", 400))
			f.set("api", instanceOnNode("1", "n0", 400))
		})
		pass(time.Minute)
		require.Len(t, w.instancesOf("web"), 2)
		require.Equal(t, sources.Degraded, w.health().State)
		pass(10 * time.Minute)
		require.Equal(t, []string{"/1"}, w.instancesOf("web"))
	})
}

// A suspicion ends: its cause does not start the next one.
func TestSuspicion_EndsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.change(local, func(f *fakeDomain) {
			f.set("web", newInstances(append(instanceOnNode("1", "n0", 50).list, instanceOnNode("2", "n0", 50).list...)))
		})
		w.start(Settings{}, 0)
		pass(10 * time.Second)
		w.mu.Lock() // the names do not change, and are not read again
		f := w.domains[local]
		f.services["web"], f.indexes["web"] = instanceOnNode("1", "n0", 400), 1000
		close(w.changed)
		w.changed = make(chan struct{})
		w.mu.Unlock()
		pass(4 * time.Minute)
		require.Equal(t, []string{"/1", "/2"}, w.instancesOf("web"))
		require.Equal(t, sources.Degraded, w.health().State)
		pass(2 * time.Minute)
		require.Equal(t, []string{"/1"}, w.instancesOf("web"))
		require.Equal(t, sources.Healthy, w.health().State)
	})
}

func TestSeveralRemovals_RaiseNoSuspicion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.change(local, twenty(0, 20, 50))
		w.start(Settings{}, 0)
		pass(10 * time.Second)
		w.change(local, func(f *fakeDomain) {
			for i := range 15 {
				f.remove(fmt.Sprintf("s%02d", i))
			}
		})
		pass(10 * time.Second)
		require.Equal(t, sources.Healthy, w.health().State)
		require.Empty(t, w.instancesOf("s00"))
		w.requireServed(15, 20)
	})
}

// A datacenter that never had a service has lost none, either.
func TestEmptyDatacenter_UnsuspectedAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := scope{datacenter: "dc1"}, scope{datacenter: "dc2"}
		w := newWorld(t, first, second)
		w.change(first, twenty(0, 20, 50))
		s := Settings{Datacenters: []string{"dc1", "dc2"}}
		_, stop := w.begin(s, 0)
		pass(time.Minute)
		require.Equal(t, sources.Healthy, w.health().State)
		stop()
		w.outlive()
		w.start(s, 0)
		pass(time.Minute)
		require.Equal(t, sources.Healthy, w.health().State, w.health().Message)
	})
}

// The clock was wrong when the suspicion was kept.
func TestSuspicionOfWrongClock_Ends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.change(local, twenty(0, 2, 50))
		s := Settings{}
		require.NoError(t, s.complete())
		w.note = judge.Records{Settings: s.identity(), Parts: map[string]judge.Record{"": {
			Index: 101, Names: []string{"s00", "s01"}, Suspicion: presence.Suspicion{End: time.Now().AddDate(20, 0, 0), Why: "lost its data"},
		}}}.Encode()
		w.start(Settings{}, 0)
		pass(time.Minute)
		require.Equal(t, sources.Degraded, w.health().State)
		pass(time.Hour)
		require.Equal(t, sources.Healthy, w.health().State, w.health().Message)
	})
}

// Consul lost its data and then was away for longer than resetHold: no agent could register meanwhile.
func TestResetHold_PausesWhileConsulIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.change(local, twenty(0, 20, 50))
		w.start(Settings{}, 0)
		pass(10 * time.Second)
		w.change(local, func(f *fakeDomain) { f.wipe() })
		pass(10 * time.Second)
		w.requireServed(0, 20)
		require.Equal(t, sources.Degraded, w.health().State)
		w.change(local, func(f *fakeDomain) { f.fails = errDown })
		pass(10 * time.Minute)
		w.requireServed(0, 20)
		w.change(local, func(f *fakeDomain) { f.fails = nil })
		pass(20 * time.Second) // the agents will be there within a minute
		w.requireServed(0, 20)
	})
}

// Consul is wiped just after the names were read at a restart, before the services are.
func TestWipeDuringFirstReads_HoldsServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.change(local, twenty(0, 20, 50))
		s := Settings{RampRate: 5}
		_, stop := w.begin(s, 0)
		pass(time.Minute)
		stop()
		w.outlive()
		clear(w.published)
		_, stop = w.begin(s, 0)
		pass(time.Second) // the names are there, most services are not
		w.mu.Lock()
		w.slowNames = 2 * time.Second
		w.mu.Unlock()
		w.change(local, func(f *fakeDomain) { f.wipe() })
		pass(30 * time.Second)
		lost := 0
		for i := range 20 {
			name := fmt.Sprintf("s%02d", i)
			w.mu.Lock()
			services, touched := w.published[name]
			w.mu.Unlock()
			n := 0
			for _, d := range services {
				n += len(d.Entries)
			}
			if touched && n == 0 {
				lost++
			}
		}
		stop()
		require.Zero(t, lost, "published without instances, or withdrawn")
	})
}

// Consul gives for a service that it never heard of the index of all services.
func TestWipeWithHigherIndexOfUnknownServices_Detected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.change(local, twenty(0, 20, 50))
		w.start(Settings{}, 0)
		pass(10 * time.Second)
		w.mu.Lock()
		w.slowNames = 200 * time.Millisecond
		w.mu.Unlock()
		w.change(local, func(f *fakeDomain) {
			f.wipe()
			f.index = 500
			twenty(0, 11, 400)(f)
			for i := 11; i < 20; i++ {
				f.indexes[fmt.Sprintf("s%02d", i)] = 500
			}
		})
		pass(time.Minute)
		w.requireServed(0, 20)
	})
}

// slowRights is a world with slow queries about rights.
type slowRights struct {
	*world
	rights time.Duration
}

func (w *slowRights) mayRead(ctx context.Context, d scope, anonymous bool, rights []dial.Right) (bool, error) {
	for _, r := range rights {
		if r.Name == "s19" {
			time.Sleep(w.rights)
		}
	}
	return w.world.mayRead(ctx, d, anonymous, rights)
}

// Names read before a wipe do not confirm reads after it.
func TestNamesBeforeWipe_ConfirmNoReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.change(local, twenty(0, 20, 50))
		shows := map[string]bool{}
		for i := range 20 {
			shows[fmt.Sprintf("s%02d", i)] = true
		}
		w.change(local, func(f *fakeDomain) { f.shows = shows })
		s := Settings{}
		require.NoError(t, s.complete())
		slow := &slowRights{w, 2 * time.Second}
		r := newRun(s, newSinkPublisher(w, w), slow, 0, newMetrics())
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = r.loop(ctx) }()
		defer func() { cancel(); <-ended }()
		pass(20 * time.Second)
		w.requireServed(0, 20)
		w.change(local, func(f *fakeDomain) { f.remove("s19") })
		pass(500 * time.Millisecond) // the names were answered, and whether s19 is hidden is being asked
		w.mu.Lock()
		w.slowNames = time.Second
		w.mu.Unlock()
		w.change(local, func(f *fakeDomain) { f.wipe(); f.shows = shows })
		for range 60 {
			pass(500 * time.Millisecond)
			for i := range 19 {
				require.NotEmpty(t, w.instancesOf(fmt.Sprintf("s%02d", i)), "%d: %s", i, w.health().Message)
			}
		}
	})
}
