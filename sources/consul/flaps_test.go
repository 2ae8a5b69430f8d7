package consul

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestResetHold_EndsDespiteFlaps has a Consul that lost its data and is away for a few seconds, more often than the
// hold lasts. Services that do not come back go after the hold. Outages do not count towards it.
func TestResetHold_EndsDespiteFlaps(t *testing.T) {
	for name, restarts := range map[string]bool{"one run": false, "restarts during outages": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.change(local, twenty(0, 20, 50))
				_, stop := w.begin(Settings{}, 0)
				defer func() { stop() }()
				pass(10 * time.Second)
				w.change(local, func(f *fakeDomain) { f.wipe(); twenty(0, 12, 3)(f) })
				pass(10 * time.Second)
				w.requireServed(0, 20)
				began, up := time.Now(), time.Duration(0)
				for up < 20*time.Minute && len(w.lastPublished("s15")) > 0 {
					w.change(local, func(f *fakeDomain) { f.fails = errDown })
					pass(10 * time.Second)
					if restarts {
						stop()
						w.outlive()
						_, stop = w.begin(Settings{}, 0)
						pass(10 * time.Second)
					}
					w.requireServed(0, 12)
					w.change(local, func(f *fakeDomain) { f.fails = nil })
					pass(2 * time.Minute)
					up += 2 * time.Minute
				}
				t.Logf("after %s, Consul was up for %s: %s", time.Since(began), up, w.health().Message)
				require.Empty(t, w.lastPublished("s15"), "it stays although Consul was there for %s", up)
				require.GreaterOrEqual(t, up, 4*time.Minute, "it stays for the hold")
				w.requireServed(0, 12)
			})
		})
	}
}

// TestWatchOfWipedConsul has a service change so often that its watch pauses while Consul loses its data. The query
// after the pause has an earlier index, which Consul reaches much later. Later changes are served nevertheless.
func TestWatchOfWipedConsul(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.change(local, twenty(0, 20, 50))
		_, stop := w.begin(Settings{}, 0)
		defer func() { stop() }()
		pass(10 * time.Second)
		busy := func(id string) func(*fakeDomain) {
			return func(f *fakeDomain) { f.set("s00", instanceOnNode(id, "n0", 3)) }
		}
		for i := range 6 {
			w.change(local, busy(fmt.Sprint("before", i)))
			pass(2 * time.Second)
		}
		w.change(local, func(f *fakeDomain) { f.wipe(); twenty(0, 20, 3)(f); busy("wiped")(f) })
		pass(40 * time.Second)
		w.change(local, busy("after"))
		pass(40 * time.Second)
		require.Contains(t, w.instancesOf("s00"), "/after", "%+v", w.health())
	})
}
