package file

import (
	"io/fs"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/sources"
)

// TestUnreadPaths_ReportedInStatus has objects served that cannot be read at present, for each of the reasons, and asks for these.
func TestUnreadPaths_ReportedInStatus(t *testing.T) {
	l := prepare(t)
	for _, name := range []string{"emptied", "linked", "denied", "fine"} {
		l.write(name+".yaml", entry(name, name+".example.com"))
	}
	l.write("sub/below.yaml", entry("below", "below.example.com"))
	l.startSynced()
	unread := func(name string) string {
		for _, s := range l.supervisor.Serving(keyOf(name)) {
			return s.Unread
		}
		return ""
	}
	l.await("all is read", func() bool { return l.host("below") != "" })
	require.Zero(t, l.status().Unread)

	l.write("emptied.yaml")
	l.remove("linked.yaml")
	l.link("nowhere", "linked.yaml")
	l.disk.fail("sub", fs.ErrPermission)
	require.NoError(t, os.Chmod(l.path("sub"), 0o700)) //nolint:gosec // the permissions are the event
	l.await("all three are reported", func() bool { return l.status().Unread == 3 })
	require.Contains(t, unread("emptied"), "is empty or missing")
	require.Contains(t, unread("linked"), "leads nowhere")
	require.Contains(t, unread("below"), "permission denied")
	require.Empty(t, unread("fine"))
	l.neverDeleted("emptied", "linked", "below")

	require.NoError(t, os.Rename(l.root, l.root+".away"))
	l.awaitHealth(sources.Unreachable)
	require.Contains(t, unread("fine"), "does not exist")
	require.NoError(t, os.Rename(l.root+".away", l.root))
}
