package file

import (
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"
)

// notSynced fails the test if the source has called itself synced, which is certain since it has reported.
func (l *live) notSynced() {
	l.t.Helper()
	require.False(l.t, l.table.Synced(), "something was never read")
	require.False(l.t, l.Status().Synced)
}

// TestStart_WithKnownPathIsSynced starts on a table with the object of a directory that is unreadable now.
func TestStart_WithKnownPathIsSynced(t *testing.T) {
	l := prepare(t, "sub/b.yaml b=b.example.com")
	l.startSynced()
	l.disk.fail("sub", fs.ErrPermission)
	restarted := &live{t: t, root: l.root, disk: l.disk, table: l.table}
	restarted.start() // a restart finds this table
	restarted.Await("it is synced", func() bool { return restarted.Status().Synced })
	require.Equal(t, "b.example.com", l.host("b"))
}
