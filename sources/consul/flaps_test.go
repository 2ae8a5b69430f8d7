package consul

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestResetHold_EndsDespiteFlaps has a Consul that lost its data and is away for a few seconds, more often than the
// hold lasts. Services that do not come back go after the hold. Outages do not count towards it.
func TestResetHold_EndsDespiteFlaps(t *testing.T) {
	eachWorld(t, map[string]bool{
		"one run": false, "restarts during outages": true,
	}, func(t *testing.T, world *world, restarts bool) {
		world.startFull()
		world.wipe(2, twenty(0, 12, 3))
		pass(10 * time.Second)
		world.requireServed(0, 20)
		began, duration := time.Now(), time.Duration(0)
		for duration < 20*time.Minute && len(world.lastPublished("s15")) > 0 {
			world.Fail(errDown)
			pass(10 * time.Second)
			if restarts {
				world.stop()
				world.start()
				pass(10 * time.Second)
			}
			world.requireServed(0, 12)
			world.Fail(nil)
			pass(2 * time.Minute)
			duration += 2 * time.Minute
		}
		t.Logf("after %s, Consul was up for %s: %s", time.Since(began), duration, world.health().Message)
		require.Empty(t, world.lastPublished("s15"), "it stays although Consul was there for %s", duration)
		require.GreaterOrEqual(t, duration, 4*time.Minute, "it stays for the hold")
		world.requireServed(0, 12)
	})
}

// TestWatchOfWipedConsul has a service change so often that its watch pauses while Consul loses its data. The query
// after the pause has an earlier index, which Consul reaches much later. Later changes are served nevertheless.
func TestWatchOfWipedConsul(t *testing.T) {
	testWorld(t, func(t *testing.T, world *world) {
		world.startFull()
		busy := func(id string) func(*datacenter) {
			return func(f *datacenter) { f.SetService("s00", instanceOnNode(id, "n0", 3)) }
		}
		for i := range 6 {
			world.change(local, busy(fmt.Sprint("before", i)))
			pass(2 * time.Second)
		}
		world.wipe(2, twenty(0, 20, 3), busy("wiped"))
		pass(40 * time.Second)
		world.change(local, busy("after"))
		pass(40 * time.Second)
		require.Contains(t, world.instancesOf("s00"), "/after", "%+v", world.health())
	})
}
