package dubbo

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources/dubbo/backend"
	"tributary/sources/dubbo/provider"
	"tributary/sources/dubbo/zookeeper/zktest"
)

// TestRule_GoesAfterItsOwnHold: a rule is missing after a first outage. A second, short outage begins shortly before
// the end of its hold: "An item that was missing before has no new hold: its own goes on"
// (presence.Suspicion.Deadline).
func TestRule_GoesAfterItsOwnHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := newRun(sourceOf(t, zktest.New(), patiently()), nil)
		hold := run.settings.Hold
		run.Connection(backend.Connection{Up: true, Fresh: true})
		providers := backend.Part{Interface: "a", Category: backend.Providers, Node: "a"}
		rules := backend.Part{Interface: "a", Category: backend.Configurators, Node: "a"}
		run.Parts([]backend.Part{providers, rules}, nil)
		run.Applications(nil, nil)
		url, err := provider.ParseURL("dubbo://10.0.0.1:20880/a?application=app")
		require.NoError(t, err)
		rule, err := provider.ParseURL("override://10.0.0.1:20880/a?category=configurators&weight=7")
		require.NoError(t, err)
		run.Registered(providers, []backend.Registration{{URL: url}}, nil)
		run.Registered(rules, []backend.Registration{{URL: rule}}, nil)
		require.True(t, run.gather(time.Now()).Synced)
		require.Len(t, run.interfaces["a"].rules, 1)
		reconnect := func() {
			run.Connection(backend.Connection{})
			time.Sleep(time.Millisecond)
			run.Connection(backend.Connection{Up: true, Fresh: true})
		}
		time.Sleep(10 * hold)
		run.gather(time.Now())
		reconnect()
		run.Registered(rules, nil, nil)
		run.gather(time.Now())
		require.Equal(t, 1, run.interfaces["a"].heldRules)

		time.Sleep(hold - 10*time.Second)
		reconnect()
		run.Registered(rules, nil, nil)
		next := run.gather(time.Now()).Next
		require.Equal(t, 1, run.interfaces["a"].heldRules)
		time.Sleep(10*time.Second + time.Millisecond)
		run.gather(time.Now()) // even if something else wakes it up
		require.Empty(t, run.interfaces["a"].rules, "its hold of %s is over", hold)
		require.LessOrEqual(t, next, 10*time.Second+time.Millisecond)
	})
}
