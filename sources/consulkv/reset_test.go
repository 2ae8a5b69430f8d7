package consulkv

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/consul/consultest"
)

// reload swaps the source for another one, as a reload does.
func (r *running) reload(settings Settings) {
	r.T.Helper()
	r.Use(newSource(r.T, r.consul, settings))
}

// filled writes rules from one number to another.
func filled(c *consultest.Server, from, to int) {
	for i := from; i < to; i++ {
		name := fmt.Sprint("r", i)
		c.Set("mesh/"+name, entryText(name, 80))
	}
}

// wipe has Consul lose its data while a query waits: a query that comes later with the old index would be let wait by a
// real one, too.
func (r *running) wipe(but ...string) {
	r.T.Helper()
	r.Await("a query waits", func() bool { return r.consul.Waiting() > 0 })
	r.consul.Wipe(but...)
}

// count is how many of n rules are served.
func (r *running) count(n int) (served int) {
	for i := range n {
		if r.has(fmt.Sprint("r", i)) {
			served++
		}
	}
	return served
}

// A leader that was killed and started again answers before it has replayed its log.
func TestLeaderReplaysItsLog(t *testing.T) {
	consul, running := synced(t, 9, Settings{})
	consul.Set("mesh/r0", entryText("r0", 81))
	running.Await("the newest", func() bool { return running.Status().Publishes == 2 })
	for _, n := range []uint64{4, 1, 9} {
		before := len(reads(consul))
		consul.Edit(func() { consul.Replayed = 10 + n })
		running.Await("it asked again", func() bool { return len(reads(consul)) > before+3 })
		require.Equal(t, 9, running.count(9), "%d of the writes were replayed", n)
		require.Equal(t, 2, running.Status().Publishes)
	}
	consul.Restore()
	running.AwaitState(sources.Healthy)
	require.Equal(t, 2, running.Status().Publishes)
}

// The responder is not Consul, or only in part, just when tributary restarts.
func TestRestart_WrongAnswer(t *testing.T) {
	for _, a := range []struct {
		status int
		body   string
		header []string
	}{
		{http.StatusNotFound, "", nil},
		{http.StatusNotFound, "<html>no such page</html>", nil},
		{http.StatusOK, "[]", nil},
		{http.StatusOK, "null", nil},
		{http.StatusOK, "[]", []string{"X-Consul-Index", "7"}}, // a proxy that takes the others away
	} {
		t.Run(fmt.Sprint(a), func(t *testing.T) {
			consul, before := synced(t, 9, Settings{})
			objects := slices.Collect(before.table.Snapshot().All())
			consul.Answer(a.status, a.body, a.header...)
			r := runThis(t, consul, newSource(t, consul, Settings{}), objects...)
			r.AwaitState(sources.Unreachable, "not Consul's")
			require.Equal(t, 9, r.count(9))
			consul.Restore()
			r.AwaitState(sources.Healthy)
			require.Equal(t, 9, r.count(9))
		})
	}
}

// After a wipe the rules are applied again, one after the other.
func TestWipe_RulesAppliedAgain(t *testing.T) {
	for operation, overtaken := range map[string]uint64{"the index goes back": 0, "the index is higher": 1000} {
		t.Run(operation, func(t *testing.T) {
			consul, running := synced(t, 9, Settings{})
			consul.Fail(consultest.ErrHungUp)
			running.AwaitState(sources.Unreachable)
			consul.Wipe()
			consul.Edit(func() { consul.Index += overtaken })
			if overtaken > 0 {
				filled(consul, 0, 1) // so soon that no query saw Consul without rules
			}
			consul.Restore()
			running.AwaitState(sources.Degraded, "lost its data", "mesh/")
			require.Equal(t, 9, running.count(9))
			consul.Set("other/x", "") // does not end it
			consul.Set("mesh/r0", entryText("r0", 81))
			before := running.Status().Publishes
			consul.Set("mesh/new", entryText("new", 80))
			running.Await("what is new", func() bool { return running.has("new") && running.Status().Publishes > before })
			require.Equal(t, 9, running.count(9), "the others are not written yet")
			running.reload(Settings{})
			lists := len(reads(consul))
			running.Await("it is read again", func() bool { return len(reads(consul)) > lists })
			running.AwaitState(sources.Degraded, "lost its data")
			consul.Set("mesh/r1", entryText("r1", 81))
			consul.Delete("mesh/new")
			running.Await("one that was written and deleted since", func() bool { return !running.has("new") })
			require.Equal(t, 9, running.count(9))
		})
	}
}

// A snapshot is restored that is older than some rules.
func TestRestoredSnapshot_NewerRulesStayForResetHold(t *testing.T) {
	consul, running := synced(t, 5, Settings{})
	filled(consul, 5, 9)
	running.Await("all", func() bool { return running.count(9) == 9 })
	consul.Fail(consultest.ErrHungUp)
	running.AwaitState(sources.Unreachable)
	for i := 5; i < 9; i++ {
		consul.Delete(fmt.Sprint("mesh/r", i))
	}
	consul.Edit(func() { clear(consul.Tombstones) }) // as it was when there were five; the index of the prefix is that of then
	consul.Restore()
	running.Await("it is read", func() bool { return running.Status().State != sources.Unreachable })
	require.Equal(t, 9, running.count(9))
}
