package consulkv

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/sources"
	"tributary/sources/consulkv/kvtest"
)

// reload swaps the source for another one, as a reload does.
func (r *running) reload(settings Settings) {
	r.t.Helper()
	r.Use(newSource(r.t, r.consul, settings))
}

// filled writes rules from one number to another.
func filled(c *kvtest.Consul, from, to int) {
	for i := from; i < to; i++ {
		name := fmt.Sprint("r", i)
		c.Set("mesh/"+name, entryText(name, 80))
	}
}

// wipe has Consul lose its data while a query waits: a query that comes later with the old index would be let wait by a
// real one, too.
func (r *running) wipe(but ...string) {
	r.t.Helper()
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
	consul := kvtest.New(t)
	filled(consul, 0, 9)
	running := runSource(t, consul, Settings{})
	running.AwaitSync()
	consul.Set("mesh/r0", entryText("r0", 81))
	running.Await("the newest", func() bool { return running.Status().Publishes == 2 })
	for _, n := range []uint64{4, 1, 9} {
		before := len(consul.Reads())
		consul.Replay(n)
		running.Await("it asked again", func() bool { return len(consul.Reads()) > before+3 })
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
			consul := kvtest.New(t)
			filled(consul, 0, 9)
			before := runSource(t, consul, Settings{})
			before.AwaitSync()
			table := &memstore.Table{}
			_, _ = table.Apply(slices.Collect(before.table.Snapshot().All()), nil)
			consul.Answer(a.status, a.body, a.header...)
			r := &running{t: t, consul: consul, table: table}
			r.run(Settings{})
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
			consul := kvtest.New(t)
			filled(consul, 0, 9)
			running := runSource(t, consul, Settings{})
			running.AwaitSync()
			consul.HangUp()
			running.AwaitState(sources.Unreachable)
			consul.Wipe()
			consul.Overtake(overtaken)
			if overtaken > 0 {
				filled(consul, 0, 1) // so soon that no query saw Consul without rules
			}
			consul.Restore()
			running.AwaitState(sources.Degraded, "lost its data")
			require.Equal(t, 9, running.count(9))
			consul.Set("mesh/r0", entryText("r0", 81))
			before := running.Status().Publishes
			consul.Set("mesh/new", entryText("new", 80))
			running.Await("what is new", func() bool { return running.has("new") && running.Status().Publishes > before })
			require.Equal(t, 9, running.count(9), "the others are not written yet")
			running.reload(Settings{})
			reads := len(consul.Reads())
			running.Await("it is read again", func() bool { return len(consul.Reads()) > reads })
			running.AwaitState(sources.Degraded, "lost its data")
			consul.Set("mesh/r1", entryText("r1", 81))
			consul.Delete("mesh/new")
			running.Await("one that was written and deleted since", func() bool { return !running.has("new") })
			require.Equal(t, 9, running.count(9))
		})
	}
}

func TestWipe_RulesNotAppliedAgainGo(t *testing.T) {
	t.Parallel()
	consul := kvtest.New(t)
	filled(consul, 0, 9)
	running := runSource(t, consul, Settings{ResetHold: 2 * time.Second})
	running.AwaitSync()
	running.wipe()
	running.AwaitState(sources.Degraded, "lost its data")
	filled(consul, 0, 7)
	running.Await("the others have gone", func() bool { return running.count(9) == 7 })
	running.AwaitState(sources.Healthy)
}

// A snapshot is restored that is older than some rules.
func TestRestoredSnapshot_NewerRulesStayForResetHold(t *testing.T) {
	consul := kvtest.New(t)
	filled(consul, 0, 5)
	running := runSource(t, consul, Settings{})
	running.AwaitSync()
	filled(consul, 5, 9)
	running.Await("all", func() bool { return running.count(9) == 9 })
	consul.HangUp()
	running.AwaitState(sources.Unreachable)
	for i := 5; i < 9; i++ {
		consul.Delete(fmt.Sprint("mesh/r", i))
	}
	consul.Forget() // as it was when there were five; the index of the prefix is that of then
	consul.Restore()
	running.Await("it is read", func() bool { return running.Status().State != sources.Unreachable })
	require.Equal(t, 9, running.count(9))
}
