package consul

import (
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/consul/consultest"
)

// Consul accepts services with names that HTTP cannot express. They block no others, and are quarantined by name.
func TestNamesUnreadableOverHTTP_Quarantined(t *testing.T) {
	for _, name := range []string{"a\u00a0b", "a\tb", "a\nb", ".", "..", "a//b", "/x"} {
		for variant, withOther := range map[string]bool{"beside another": true, "alone": false} {
			t.Run(variant+" "+name, func(t *testing.T) {
				server := consultest.New(t)
				server.Register(name, "1")
				if withOther {
					server.Register("web", "1")
				}
				r := runSource(t, server, Settings{})
				r.Await("it is synced", func() bool { return r.Status().Synced && len(r.Status().Quarantined) == 1 })
				require.Equal(t, withOther, r.serves("web"))
				r.AwaitState(sources.Healthy)
				q := r.Status().Quarantined[0]
				require.Equal(t, name, q.Group)
				require.Contains(t, q.Reason, "cannot be read")
				server.Register("api", "1")
				r.Await("the rest is followed", func() bool { return r.serves("api") })
			})
		}
	}
}

// One service has an answer that cannot be understood: it keeps its last good, and a start goes on without it.
func TestUnreadableService_Quarantined(t *testing.T) {
	t.Parallel()
	server := consultest.New(t)
	server.Register("web", "1")
	server.Register("odd", "1")
	running := runSource(t, server, Settings{})
	running.awaitServed("odd")
	server.Edit(func() { server.Refusals = map[string]error{"odd": api.StatusError{Code: 400, Body: "no"}} })
	running.Await("it is quarantined", func() bool { return len(running.Status().Quarantined) == 1 })
	require.True(t, running.serves("odd"), "the last good")
	require.Equal(t, "its last good version", running.Status().Quarantined[0].Serves())
	running.AwaitState(sources.Healthy) // the report follows the quarantine
	cold := runSource(t, server, Settings{})
	cold.awaitServed()
	require.True(t, cold.serves("web") && !cold.serves("odd"))
	require.Equal(t, "nothing", cold.Status().Quarantined[0].Serves())
	server.Restore()
	cold.Await("it is read", func() bool { return cold.serves("odd") && len(cold.Status().Quarantined) == 0 })
}

// A filter that is no expression is at fault itself: no service is settled by that.
func TestInvalidFilter_SettlesNoService(t *testing.T) {
	testWorld(t, func(t *testing.T, world *world) {
		world.set("web", "1")
		world.set("api", "1")
		refused := api.StatusError{Code: 400, Body: "Failed to create boolean expression evaluator"}
		world.Refusals = map[string]error{"web": refused, "api": refused}
		world.start(Settings{HealthFilter: "!"})
		pass(time.Hour)
		require.False(t, world.synced())
		world.requireState(sources.Unreachable, "boolean expression")
	})
}

// An unreadable name does not hide that no other service is readable.
func TestQuarantinedService_HidesNoDenial(t *testing.T) {
	eachWorld(t, map[string]bool{
		"alone": false, "beside an unreadable name": true,
	}, func(t *testing.T, w *world, odd bool) {
		w.set("web", "1")
		if odd {
			w.set("..", "1")
		}
		w.Refusals = map[string]error{"web": errDenied, "..": api.StatusError{Code: 400, Body: "Missing service name"}}
		w.start()
		pass(time.Minute)
		require.False(t, w.synced())
		w.requireState(sources.Denied)
	})
}

// A service was published before, is gone, and cannot be read for its own sake: the names are sure that it is gone.
func TestRestoredUnreadableService_Removed(t *testing.T) {
	eachWorld(t, map[string]error{
		"400": api.StatusError{Code: 400, Body: "blocked"},
		"503": api.StatusError{Code: 503, Body: "upstream"},
	}, func(t *testing.T, world *world, err error) {
		world.change(local, twenty(0, 20, 50))
		world.start()
		pass(time.Minute)
		world.stop()
		world.Remove("s00")
		world.Refusals = map[string]error{"s00": err}
		run := world.start()
		pass(24 * time.Hour)
		run.mu.Lock()
		_, still := run.scopes[0].services["s00"]
		run.mu.Unlock()
		require.True(t, world.synced(), "a start that never ends")
		require.False(t, still, "deregistered a day ago; the names say so for certain")
	})
}

// A service is refused while Consul may have lost its data, and was never read: when that is over, it goes as any
// other.
func TestRefusedService_RemovedAfterSuspicion(t *testing.T) {
	testWorld(t, func(t *testing.T, world *world) {
		world.change(local, twenty(0, 20, 50))
		world.set("a//b", "1")
		world.Refusals = map[string]error{"a//b": api.StatusError{Code: 400, Body: "no"}}
		run := world.start()
		pass(10 * time.Second)
		world.wipe(2)
		pass(10 * time.Second)
		world.change(local, twenty(0, 20, 3))
		pass(24 * time.Hour)
		run.mu.Lock()
		rejects := len(run.rejects("a//b"))
		run.mu.Unlock()
		require.Zero(t, rejects, "in quarantine a day after it went")
	})
}
