package consul

import (
	"testing"
	"time"
)

// TestResetHold_OutageAcrossRestart: Consul loses its data, and then is down while tributary restarts: "missing
// services stay for resetHold …, in which outages do not count" (README), and holds survive restarts.
func TestResetHold_OutageAcrossRestart(t *testing.T) {
	eachWorld(t, map[string]time.Duration{
		"shorter than the hold": 2 * time.Minute, "longer than the hold": 10 * time.Minute,
	}, func(t *testing.T, world *world, down time.Duration) {
		world.startFull()
		world.wipe(2)
		pass(10 * time.Second)
		world.change(local, twenty(0, 12, 3))
		pass(10 * time.Second)
		world.requireServed(0, 20)
		world.Fail(errDown)
		pass(30 * time.Second) // the source knows that Consul is down
		world.stop()
		time.Sleep(down)
		world.start()
		pass(time.Minute)
		world.requireServed(0, 20)
		world.Fail(nil)
		pass(2*time.Minute + 30*time.Second) // of resetHold, 5 minutes, at most 3:20 have passed with Consul
		world.requireServed(0, 20)
	})
}
