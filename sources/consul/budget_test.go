package consul

import (
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/consul/consultest"
)

// manyInstances is a number of instances.
func manyInstances(n int) (entries []*api.ServiceEntry) {
	for i := range n {
		entries = append(entries, consultest.Instances(fmt.Sprint(i))...)
	}
	return entries
}

// Instances over the limit belong to one service, or to many: the last read instances stay, and other services follow
// Consul.
func TestInstancesOverLimit_KeepEarlierOnes(t *testing.T) {
	testWorld(t, func(t *testing.T, world *world) {
		world.bounds = limits{services: 10, instances: 20}
		world.Put("web", manyInstances(10)...)
		world.Put("api", manyInstances(5)...)
		run := world.start(Settings{Grace: time.Minute})
		pass(time.Minute)
		world.requireState(sources.Healthy)
		world.Put("web", manyInstances(16)...)
		pass(time.Minute)
		require.Len(t, world.lastPublished("web")[0].Entries, 10)
		run.mu.Lock()
		rejects := run.rejects("web")
		run.mu.Unlock()
		require.Len(t, rejects, 1)
		require.ErrorContains(t, rejects[0].Err, "read service web: with its 16 instances there would be 21, and at most 20 are kept: "+
			"that is more than is taken")
		world.Put("api", manyInstances(4)...)
		pass(10 * time.Minute)
		require.Len(t, world.lastPublished("api")[0].Entries, 4)
		require.Len(t, world.lastPublished("web")[0].Entries, 16, "there is room")
		world.requireState(sources.Healthy)
		world.Remove("web")
		pass(time.Hour)
		world.Put("api", manyInstances(20)...)
		pass(time.Hour)
		require.Len(t, world.lastPublished("api")[0].Entries, 20, "a removed service frees its room")
	})
}

func TestServicesOverLimit_NotFollowed(t *testing.T) {
	testWorld(t, func(t *testing.T, w *world) {
		w.bounds = limits{services: 3, instances: 20}
		w.set("web", "1")
		w.start()
		pass(time.Minute)
		w.Change(func() {
			for i := range 3 {
				w.List(fmt.Sprint("s", i), "1")
			}
		})
		pass(time.Minute)
		require.Equal(t, []string{"web"}, w.names())
		require.Contains(t, w.health().Message, "there are 4, and at most 3 are followed: that is more than is taken")
		w.Remove("s0")
		pass(10 * time.Minute)
		require.Equal(t, []string{"s1", "s2", "web"}, w.names())
		w.requireState(sources.Healthy)
	})
}
