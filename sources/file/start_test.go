package file

import (
	"io/fs"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources"
)

// notSynced fails the test if the source has called itself synced, which is certain since it has reported.
func (l *live) notSynced() {
	l.t.Helper()
	require.False(l.t, l.table.Synced(), "something was never read")
	require.False(l.t, l.Status().Synced)
}

func TestStart_WaitsForUnreadPaths(t *testing.T) {
	t.Run("an unreadable directory", func(t *testing.T) {
		l := prepare(t, "a.yaml a=a.example.com", "sub/b.yaml b=b.example.com")
		l.disk.fail("sub", fs.ErrPermission)
		l.start()
		l.AwaitState(sources.Degraded, "not synced", l.path("sub"), "partialStart")
		l.awaitHost("a", "a.example.com")
		l.notSynced()
		l.disk.fail("sub", nil)
		l.chmod("sub", 0o755)
		l.AwaitSync()
		require.Equal(t, "b.example.com", l.host("b"))
		l.AwaitState(sources.Healthy)
	})
	t.Run("an unreadable directory that is removed", func(t *testing.T) {
		l := prepare(t, "a.yaml a=a.example.com", "sub/b.yaml b=b.example.com")
		l.disk.fail("sub", syscall.EIO)
		l.start()
		l.AwaitState(sources.Degraded, "not synced", l.path("sub"))
		l.notSynced()
		l.remove("sub")
		l.AwaitSync()
	})
	t.Run("a link that leads nowhere, be it to a file or to a directory", func(t *testing.T) {
		for _, name := range []string{"b.yaml", "shared"} {
			l := prepare(t, "a.yaml a=a.example.com")
			l.link("../out", name)
			l.follow = true
			l.start()
			l.AwaitState(sources.Degraded, "not synced", l.path(name))
			l.notSynced()
			if name == "shared" {
				l.write("../out/b.yaml", "b=b.example.com")
			} else {
				l.write("../out", "b=b.example.com")
			}
			l.AwaitSync()
			require.Equal(t, "b.example.com", l.host("b"))
		}
	})
	t.Run("a link to itself that has the name of a file", func(t *testing.T) {
		l := prepare(t, "a.yaml a=a.example.com")
		l.link("b.yaml", "b.yaml")
		l.start()
		l.AwaitState(sources.Degraded, "not synced", l.path("b.yaml"))
		l.notSynced()
		l.remove("b.yaml")
		l.AwaitSync()
	})
	t.Run("unless partialStart is set", func(t *testing.T) {
		l := prepare(t, "a.yaml a=a.example.com", "sub/b.yaml b=b.example.com")
		l.link("nowhere", "c.yaml")
		l.disk.fail("sub", fs.ErrPermission)
		l.startSynced(Settings{PartialStart: true})
		l.AwaitState(sources.Degraded, l.path("sub"), l.path("c.yaml"))
		require.NotContains(t, l.Status().Message, "not synced")
	})
	t.Run("not if something of it is known from before", func(t *testing.T) {
		l := prepare(t, "sub/b.yaml b=b.example.com")
		l.startSynced()
		l.disk.fail("sub", fs.ErrPermission)
		restarted := &live{t: t, root: l.root, disk: l.disk, table: l.table}
		restarted.start() // a restart finds this table
		restarted.Await("it is synced", func() bool { return restarted.Status().Synced })
		require.Equal(t, "b.example.com", l.host("b"))
	})
}

// The name of an unreadable file is enough: it blocks neither its neighbours nor the start.
func TestUnreadableFileAtStart_Quarantined(t *testing.T) {
	live := prepare(t, "a.yaml a=a.example.com", "b.yaml b=b.example.com")
	live.disk.fail("b.yaml", fs.ErrPermission)
	live.startSynced()
	q := live.awaitQuarantined(1)[0]
	require.Equal(t, "b.yaml", q.Group)
	require.Equal(t, live.path("b.yaml"), q.Place)
	require.Contains(t, q.Reason, live.path("b.yaml"))
	live.AwaitState(sources.Degraded, live.path("b.yaml"))
	live.disk.fail("b.yaml", nil)
	live.chmod("b.yaml", 0o644)
	live.awaitHost("b", "b.example.com")
	live.awaitQuarantined(0)
	live.AwaitState(sources.Healthy)
}

// Without one readable file, the start does not count as read.
func TestStart_WithoutReadableFileIsUnsynced(t *testing.T) {
	live := prepare(t, "a.yaml a=a.example.com", "b.yaml b=b.example.com")
	live.disk.fail("a.yaml", fs.ErrPermission)
	live.disk.fail("b.yaml", syscall.ESTALE)
	live.startWith(Settings{RescanInterval: 100 * time.Millisecond})
	live.AwaitState(sources.Degraded, "not synced", live.path("a.yaml"), live.path("b.yaml"))
	live.notSynced()
	live.disk.fail("b.yaml", nil)
	live.AwaitSync()
	require.Equal(t, "b.example.com", live.host("b"))
}
