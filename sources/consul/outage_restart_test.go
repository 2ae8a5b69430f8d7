package consul

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestResetHold_OutageAcrossRestart: Consul loses its data, and then is down while tributary restarts: "missing
// services stay for resetHold …, in which outages do not count" (README), and holds survive restarts.
func TestResetHold_OutageAcrossRestart(t *testing.T) {
	for name, down := range map[string]time.Duration{"shorter than the hold": 2 * time.Minute, "longer than the hold": 10 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				world := newWorld(t)
				world.change(local, twenty(0, 20, 50))
				_, stop := world.begin(Settings{}, 0)
				pass(10 * time.Second)
				world.change(local, func(f *fakeDomain) { f.wipe() })
				pass(10 * time.Second)
				world.change(local, twenty(0, 12, 3))
				pass(10 * time.Second)
				world.requireServed(0, 20)
				world.change(local, func(f *fakeDomain) { f.fails = errDown })
				pass(30 * time.Second) // the source knows that Consul is down
				stop()
				world.outlive()
				time.Sleep(down)
				_, stop = world.begin(Settings{}, 0)
				defer stop()
				pass(time.Minute)
				world.requireServed(0, 20)
				world.change(local, func(f *fakeDomain) { f.fails = nil })
				pass(2*time.Minute + 30*time.Second) // of resetHold, 5 minutes, at most 3:20 have passed with Consul
				world.requireServed(0, 20)
			})
		})
	}
}
