package file

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources"
)

const brokenYAML = "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: x\n"

func TestBrokenDocument_KeepsOthers(t *testing.T) {
	l := prepare(t)
	l.write("a.yaml", entry("first", "v1.example.com"), entry("broken", "v1.example.com"), entry("last", "v1.example.com"))
	l.write("b.yaml", entry("b", "v1.example.com"))
	l.startSynced()
	for _, broken := range []string{
		brokenYAML,
		strings.Replace(entry("broken", "v2.example.com"), "number: 80", "number: eighty", 1),
		strings.Replace(entry("broken", "v2.example.com"), "number: 80", "number: 80000", 1),
		strings.Replace(entry("broken", "v2.example.com"), "kind: ServiceEntry", "kind: ServiceEntri", 1),
		strings.Replace(entry("broken", "v2.example.com"), "resolution:", "resolutions:", 1),
		"\x00\xff\xfe binary\n",
	} {
		version := fmt.Sprintf("v%d.example.com", time.Now().UnixNano())
		l.write("a.yaml", entry("first", version), broken, entry("last", version))
		l.awaitHost("first", version)
		l.awaitHost("last", version)
		require.Equal(t, "v1.example.com", l.host("broken"))
		q := l.awaitQuarantined(1)[0]
		require.True(t, strings.HasPrefix(q.Place, l.path("a.yaml")+":"), q.Place)
		require.Contains(t, q.Reason, l.path("a.yaml"))
		require.Equal(t, "a.yaml", q.Group)
	}
	l.write("a.yaml", entry("first", "v3.example.com"), entry("broken", "v3.example.com"))
	l.awaitHost("broken", "v3.example.com")
	l.awaitHost("last", "")
	l.awaitQuarantined(0)
	l.neverDeleted("first", "broken", "b")
}

func TestUnrelatedFiles_Ignored(t *testing.T) {
	l := prepare(t)
	l.write("good.yaml", entry("good", "good.example.com"))
	l.write("binary.yaml", string(bytes.Repeat([]byte{0x7f, 'E', 'L', 'F', 0, 1, 2, 0xff}, 4096)))
	l.write("pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n")
	l.write("empty.yaml", "")
	l.write("comment.yaml", "# nothing yet\n---\n")
	l.write("list.json", "[1, 2]")
	require.NoError(t, syscall.Mkfifo(l.path("pipe.yaml"), 0o600))
	l.link("/dev/null", "masked.yaml")
	l.startSynced()
	require.Equal(t, "good.example.com", l.host("good"))
	l.awaitHealth(sources.Healthy)
	var groups []string
	for _, q := range l.status().Quarantined {
		groups = append(groups, q.Group)
		require.Contains(t, q.Reason, l.path(q.Group)+":")
	}
	require.Equal(t, []string{"binary.yaml", "list.json"}, groups)
	require.Equal(t, 1, l.status().Foreign, "the pod")
}

func TestLargeFiles(t *testing.T) {
	l := prepare(t)
	var docs []string
	pad := "# " + strings.Repeat("x", 10_000) + "\n"
	for i := range 1100 {
		docs = append(docs, pad+entry(fmt.Sprintf("e%d", i), fmt.Sprintf("e%d.example.com", i)))
	}
	l.write("large.yaml", docs...)
	fi, err := os.Stat(l.path("large.yaml"))
	require.NoError(t, err)
	require.Greater(t, fi.Size(), int64(10<<20))
	l.startSynced()
	require.Equal(t, 1100, l.table.Snapshot().Len())
	require.Equal(t, "e1099.example.com", l.host("e1099"))
}

func TestFileTooLarge(t *testing.T) {
	l := prepare(t)
	l.write("a.yaml", entry("a", "a1.example.com"))
	l.write("b.yaml", entry("b", "b1.example.com"))
	l.startWith(Settings{MaxFileBytes: 1000})
	l.await("it is synced", l.table.Synced)
	l.write("a.yaml", entry("a", "a2.example.com"), strings.Repeat("#", 1000))
	q := l.awaitQuarantined(1)[0]
	require.Contains(t, q.Reason, l.path("a.yaml")+": file too large: it has ")
	require.Contains(t, q.Reason, "maxFileBytes is 1000")
	require.Equal(t, "a1.example.com", l.host("a"))
	l.write("a.yaml", entry("a", "a3.example.com"))
	l.awaitHost("a", "a3.example.com")
	l.awaitQuarantined(0)
	l.neverDeleted("a", "b")
}

func TestUnreadableFile_KeepsObjectsAndIsNamed(t *testing.T) {
	l := prepare(t)
	l.write("a.yaml", entry("a", "a1.example.com"))
	l.write("b.yaml", entry("b", "b1.example.com"))
	l.startSynced()
	for _, err := range []error{fs.ErrPermission, syscall.EIO} {
		l.disk.fail("a.yaml", err)
		l.write("a.yaml", entry("a", err.Error()))
		l.awaitHealth(sources.Degraded, l.path("a.yaml"), err.Error())
		require.Equal(t, "a.yaml", l.awaitQuarantined(1)[0].Group)
		l.write("b.yaml", entry("b", "b2.example.com"))
		l.awaitHost("b", "b2.example.com")
		l.awaitHealth(sources.Degraded, l.path("a.yaml"))
	}
	l.disk.fail("a.yaml", nil)
	require.NoError(t, os.Chmod(l.path("a.yaml"), 0o644)) //nolint:gosec // the permissions are the event
	l.awaitHealth(sources.Healthy)
	l.write("a.yaml", entry("a", "a2.example.com"))
	l.awaitHost("a", "a2.example.com")
	l.neverDeleted("a", "b")
}

func TestUnreadableFileAtStart_ReadByRescan(t *testing.T) {
	l := prepare(t)
	l.write("a.yaml", entry("a", "a1.example.com"))
	l.write("b.yaml", entry("b", "b1.example.com"))
	l.disk.fail("a.yaml", fs.ErrPermission)
	l.startWith(Settings{RescanInterval: 100 * time.Millisecond})
	l.awaitHost("b", "b1.example.com")
	l.awaitHealth(sources.Degraded, l.path("a.yaml"))
	l.disk.fail("a.yaml", nil)
	l.awaitHost("a", "a1.example.com")
	l.awaitHealth(sources.Healthy)
}

func TestUnreadableDirectory_KeepsObjectsAndIsNamed(t *testing.T) {
	l := prepare(t)
	l.write("sub/deep/a.yaml", entry("a", "a1.example.com"))
	l.write("b.yaml", entry("b", "b1.example.com"))
	l.startSynced()
	l.disk.fail("sub", fs.ErrPermission)
	require.NoError(t, os.Chmod(l.path("sub"), 0o755)) //nolint:gosec // the permissions are the event
	l.awaitHealth(sources.Degraded, l.path("sub"))
	l.write("b.yaml", entry("b", "b2.example.com"))
	l.awaitHost("b", "b2.example.com")
	require.Equal(t, "a1.example.com", l.host("a"))
	l.disk.fail("sub", nil)
	require.NoError(t, os.Chmod(l.path("sub"), 0o700)) //nolint:gosec // the permissions are the event
	l.awaitHealth(sources.Healthy)
	l.write("sub/deep/a.yaml", entry("a", "a2.example.com"))
	l.awaitHost("a", "a2.example.com")
	l.neverDeleted("a", "b")
}

func TestUnreadableRoot_KeepsObjects(t *testing.T) {
	l := prepare(t)
	l.write("a.yaml", entry("a", "a1.example.com"))
	l.write("sub/b.yaml", entry("b", "b1.example.com"))
	l.startSynced()
	for state, err := range map[sources.State]error{sources.Denied: fs.ErrPermission, sources.Unreachable: syscall.ESTALE} {
		l.disk.fail("rules", err)
		require.NoError(t, os.Chmod(l.root, 0o755)) //nolint:gosec // the permissions are the event
		l.awaitHealth(state, l.root)
		l.disk.fail("rules", nil)
		require.NoError(t, os.Chmod(l.root, 0o700)) //nolint:gosec // the permissions are the event
		l.awaitHealth(sources.Healthy)
	}
	l.neverDeleted("a", "b")
}

// TestPermissions is the same with a real file system; root may read everything.
func TestPermissions(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("runs as root, and permissions do not stop root")
	}
	l := prepare(t)
	l.write("a.yaml", entry("a", "a1.example.com"))
	l.write("sub/b.yaml", entry("b", "b1.example.com"))
	l.startSynced()
	require.NoError(t, os.Chmod(l.path("a.yaml"), 0))
	l.awaitHealth(sources.Degraded, l.path("a.yaml"))
	require.NoError(t, os.Chmod(l.path("a.yaml"), 0o600))
	l.awaitHealth(sources.Healthy)
	require.NoError(t, os.Chmod(l.path("sub"), 0))
	l.awaitHealth(sources.Degraded, l.path("sub"))
	require.NoError(t, os.Chmod(l.path("sub"), 0o700)) //nolint:gosec // a directory
	l.awaitHealth(sources.Healthy)
	require.NoError(t, os.Chmod(l.root, 0))
	l.awaitHealth(sources.Denied, l.root)
	require.NoError(t, os.Chmod(l.root, 0o700)) //nolint:gosec // a directory
	l.awaitHealth(sources.Healthy)
	l.neverDeleted("a", "b")

	first := prepare(t) // at a first start, an unreadable directory does not count as empty
	first.write("a.yaml", entry("a", "a1.example.com"))
	first.write("sub/b.yaml", entry("b", "b1.example.com"))
	require.NoError(t, os.Chmod(first.path("sub"), 0))
	first.start()
	first.awaitHealth(sources.Degraded, "not synced", first.path("sub"))
	first.notSynced()
	require.NoError(t, os.Chmod(first.path("sub"), 0o700)) //nolint:gosec // a directory
	first.await("it is synced", first.table.Synced)
	require.Equal(t, "b1.example.com", first.host("b"))
}

func TestFile_RemovedDuringRead(t *testing.T) {
	l := prepare(t)
	l.write("a.yaml", entry("a", "a1.example.com"))
	l.write("b.yaml", entry("b", "b1.example.com"))
	l.startSynced()
	l.disk.plan(&l.disk.before, "a.yaml", func() { l.remove("a.yaml") })
	l.write("a.yaml", entry("a", "a2.example.com"))
	l.awaitHost("a", "")
	l.awaitHealth(sources.Healthy)
	require.Empty(t, l.status().Quarantined)
	l.neverDeleted("b")
}

func TestFile_WrittenDuringRead(t *testing.T) {
	l := prepare(t)
	l.write("a.yaml", entry("a", "a1.example.com"), entry("b", "b1.example.com"))
	l.startSynced()
	// The first read finds valid YAML without b, which is still being written.
	l.disk.plan(&l.disk.during, "a.yaml", func() {
		l.disk.plan(&l.disk.during, "a.yaml", nil)
		l.overwrite("a.yaml", entry("a", "a2.example.com"), entry("b", "b2.example.com"))
	})
	l.write("a.yaml", entry("a", "a2.example.com"))
	l.awaitHost("b", "b2.example.com")
	l.awaitHost("a", "a2.example.com")
	l.neverDeleted("a", "b")
}

func TestWatcher_ReportsLostEvents(t *testing.T) {
	d := t.TempDir()
	w := newWatcher(osDisk{}, true, nil)
	defer w.close()
	w.enter("", d, stamp{})
	w.enter("sub", d+"/sub", stamp{})
	for i := range maxDirty + 1 {
		w.noteEvent(event(fmt.Sprintf("%s/sub/f%d.yaml", d, i)))
	}
	paths, lost := w.takeChanged()
	require.True(t, lost, "so many that it is simpler to look at everything")
	require.LessOrEqual(t, len(paths), maxDirty)
	w.noteLost()
	<-w.wake
	_, lost = w.takeChanged()
	require.True(t, lost)
	paths, lost = w.takeChanged()
	require.False(t, lost)
	require.Empty(t, paths)
}

func TestUnknownFieldsWarn(t *testing.T) {
	l := prepare(t)
	l.write("a.yaml", strings.Replace(entry("a", "a1.example.com"), "resolution:", "fromTheFuture: 1\n  resolution:", 1))
	l.startWith(Settings{Texts: sources.Texts{UnknownFields: "warn"}})
	l.await("it is synced", l.table.Synced)
	require.Equal(t, "a1.example.com", l.host("a"))
	require.Len(t, l.status().Warnings, 1)
	require.Contains(t, l.status().Warnings[0], "fromTheFuture")
	l.write("a.yaml", entry("a", "a2.example.com"))
	l.awaitHost("a", "a2.example.com")
	l.await("the warning ends", func() bool { return len(l.status().Warnings) == 0 })
}
