package consul

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources"
)

// A young Consul that lost its data has the same nodes at the same indexes again, and a higher index than before:
// nothing but its identity tells.
func TestAWipedConsulIsAnotherCluster(t *testing.T) {
	wiped := func(f *fakeDomain, names, instances int) {
		f.wipe()
		f.cluster, f.index = "2", 500
		twenty(0, names, 50)(f)
		if instances == 1 {
			f.set("web", made("1", "n0", 50))
		} else {
			f.set("web", twoOf())
		}
	}
	for what, c := range map[string]struct{ names, instances int }{
		"a name is missing":     {5, 2},
		"an instance is":        {6, 1},
		"nothing is, for a now": {6, 2},
	} {
		t.Run(what, func(t *testing.T) {
			for _, restart := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					w.change(local, func(f *fakeDomain) { f.cluster = "1"; twenty(0, 6, 50)(f); f.set("web", twoOf()) })
					_, stop := w.begin(Settings{}, 0)
					pass(time.Minute)
					if restart {
						stop()
						w.outlive()
					}
					w.change(local, func(f *fakeDomain) { wiped(f, c.names, c.instances) })
					if restart {
						_, stop = w.begin(Settings{}, 0)
					}
					pass(time.Minute)
					w.change(local, func(f *fakeDomain) { f.remove("s04") }) // it is not known any more who is right
					pass(time.Minute)
					w.requireServed(0, min(c.names, 4))
					require.Equal(t, []string{"1", "2"}, w.endpoints("web"))
					require.Equal(t, []string{"1"}, w.endpoints("s05"))
					require.Equal(t, sources.Degraded, w.health().State, w.health().Message)
					pass(10 * time.Minute)
					require.Len(t, w.endpoints("web"), c.instances)
					require.Equal(t, sources.Healthy, w.health().State, w.health().Message)
					stop()
				})
			}
		})
	}
}

func twoOf() instances {
	return newInstances(append(made("1", "n0", 50).list, made("2", "n1", 51).list...))
}

// What is missing is not believed while it cannot be found out which cluster it is; what is there is.
func TestTheClusterCannotBeAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.change(local, func(f *fakeDomain) {
			f.cluster = "1"
			f.set("web", twoOf())
			f.set("api", at("1"))
			f.set("db", at("1"))
		})
		w.start(Settings{}, 0)
		pass(time.Minute)
		w.mu.Lock()
		w.nameless = errors.New("the authority has not finished its start")
		w.mu.Unlock()
		w.change(local, func(f *fakeDomain) {
			f.set("web", made("1", "n0", 50))
			f.set("api", newInstances(append(at("1").list, at("2").list...)))
		})
		pass(time.Minute)
		require.Equal(t, []string{"1", "2"}, w.endpoints("web"))
		require.Equal(t, []string{"1", "2"}, w.endpoints("api"))
		require.Contains(t, w.health().Message, "has not finished its start")
		w.mu.Lock()
		w.nameless = nil
		w.mu.Unlock()
		pass(time.Minute)
		require.Equal(t, []string{"1"}, w.endpoints("web"))
		require.Equal(t, sources.Healthy, w.health().State, w.health().Message)
	})
}

// All nodes were made anew, and names were read since: what is missing a little later is missing for that reason.
func TestWhatIsMissingAWhileAfterAWipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.change(local, func(f *fakeDomain) { f.set("web", twoOf()); twenty(0, 3, 50)(f) })
		w.start(Settings{}, 0)
		pass(time.Minute)
		again := newInstances(append(made("1", "n0", 400).list, made("2", "n1", 401).list...))
		w.change(local, func(f *fakeDomain) { f.wipe(); f.index = 500; f.set("web", again); twenty(0, 3, 400)(f) })
		pass(time.Minute)
		w.change(local, func(f *fakeDomain) { f.set("new", made("1", "n0", 400)) })
		pass(10 * time.Second)
		w.change(local, func(f *fakeDomain) { f.set("web", made("1", "n0", 400)) })
		pass(time.Minute)
		require.Equal(t, []string{"1", "2"}, w.endpoints("web"))
		pass(10 * time.Minute)
		require.Equal(t, []string{"1"}, w.endpoints("web"))
		require.Equal(t, sources.Healthy, w.health().State, w.health().Message)
	})
}
