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
	live := prepare(t)
	for _, name := range []string{"emptied", "linked", "denied", "fine"} {
		live.write(name+".yaml", entry(name, name+".example.com"))
	}
	live.write("sub/below.yaml", "below=below.example.com")
	live.startSynced()
	unread := func(name string) string {
		for _, s := range live.Supervisor.Serving(keyOf(name)) {
			return s.Unread
		}
		return ""
	}
	live.Await("all is read", func() bool { return live.host("below") != "" })
	require.Zero(t, live.Status().Unread)

	live.write("emptied.yaml")
	live.remove("linked.yaml")
	live.link("nowhere", "linked.yaml")
	live.disk.fail("sub", fs.ErrPermission)
	live.chmod("sub", 0o700)
	live.Await("all three are reported", func() bool { return live.Status().Unread == 3 })
	require.Contains(t, unread("emptied"), "is empty or missing")
	require.Contains(t, unread("linked"), "leads nowhere")
	require.Contains(t, unread("below"), "permission denied")
	require.Empty(t, unread("fine"))
	live.neverDeleted("emptied", "linked", "below")

	require.NoError(t, os.Rename(live.root, live.root+".away"))
	live.AwaitState(sources.Unreachable)
	require.Contains(t, unread("fine"), "does not exist")
	require.NoError(t, os.Rename(live.root+".away", live.root))
}
