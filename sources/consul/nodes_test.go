package consul

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources"
)

// A token that is limited to some nodes has every answer filtered. What goes on a node that it may see has gone all the same.
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
