package dubbo

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources/dubbo/provider"
	"tributary/sources/dubbo/registry"
	"tributary/sources/dubbo/zookeeper/zktest"
)

// TestRule_GoesAfterItsOwnHold: a rule is missing after a first outage. A second, short outage begins shortly before
// the end of its hold: "An item that was missing before has no new hold: its own goes on"
// (presence.Suspicion.Deadline).
func TestRule_GoesAfterItsOwnHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRun(sourceOf(t, zktest.New(), patiently()), nil)
		hold := r.settings.Hold
		r.Connection(registry.Connection{Up: true, Fresh: true})
		providers := registry.Part{Interface: "a", Category: registry.Providers, Node: "a"}
		rules := registry.Part{Interface: "a", Category: registry.Configurators, Node: "a"}
		r.Parts([]registry.Part{providers, rules}, nil)
		r.Applications(nil, nil)
		u, err := provider.ParseURL("dubbo://10.0.0.1:20880/a?application=app")
		require.NoError(t, err)
		rule, err := provider.ParseURL("override://10.0.0.1:20880/a?category=configurators&weight=7")
		require.NoError(t, err)
		r.Registered(providers, []registry.Registration{{URL: u}}, nil)
		r.Registered(rules, []registry.Registration{{URL: rule}}, nil)
		require.True(t, r.gather(time.Now()).Synced)
		require.Len(t, r.interfaces["a"].rules, 1)
		reconnect := func() {
			r.Connection(registry.Connection{})
			time.Sleep(time.Millisecond)
			r.Connection(registry.Connection{Up: true, Fresh: true})
		}
		time.Sleep(10 * hold)
		r.gather(time.Now())
		reconnect()
		r.Registered(rules, nil, nil)
		r.gather(time.Now())
		require.Equal(t, 1, r.interfaces["a"].heldRules)

		time.Sleep(hold - 10*time.Second)
		reconnect()
		r.Registered(rules, nil, nil)
		next := r.gather(time.Now()).Next
		require.Equal(t, 1, r.interfaces["a"].heldRules)
		time.Sleep(10*time.Second + time.Millisecond)
		r.gather(time.Now()) // even if something else wakes it up
		require.Empty(t, r.interfaces["a"].rules, "its hold of %s is over", hold)
		require.LessOrEqual(t, next, 10*time.Second+time.Millisecond)
	})
}
