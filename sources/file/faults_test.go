package file

import (
	"bytes"
	"fmt"
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
	l := prepare(t,
		"a.yaml first=v1.example.com broken=v1.example.com last=v1.example.com",
		"b.yaml b=v1.example.com")
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
	l.write("a.yaml", "first=v3.example.com", "broken=v3.example.com")
	l.awaitHost("broken", "v3.example.com")
	l.awaitHost("last", "")
	l.awaitQuarantined(0)
	l.neverDeleted("first", "broken", "b")
}

func TestUnrelatedFiles_Ignored(t *testing.T) {
	live := prepare(t, "good.yaml good=good.example.com")
	live.write("binary.yaml", string(bytes.Repeat([]byte{0x7f, 'E', 'L', 'F', 0, 1, 2, 0xff}, 4096)))
	live.write("pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n")
	live.write("empty.yaml", "")
	live.write("comment.yaml", "# nothing yet\n---\n")
	live.write("list.json", "[1, 2]")
	require.NoError(t, syscall.Mkfifo(live.path("pipe.yaml"), 0o600))
	live.link("/dev/null", "masked.yaml")
	live.startSynced()
	require.Equal(t, "good.example.com", live.host("good"))
	live.AwaitState(sources.Healthy)
	var groups []string
	for _, q := range live.Status().Quarantined {
		groups = append(groups, q.Group)
		require.Contains(t, q.Reason, live.path(q.Group)+":")
	}
	require.Equal(t, []string{"binary.yaml", "list.json"}, groups)
	require.Equal(t, 1, live.Status().Foreign, "the pod")
}

func TestLargeFiles(t *testing.T) {
	live := prepare(t)
	var docs []string
	pad := "# " + strings.Repeat("x", 10_000) + "\n"
	for i := range 1100 {
		docs = append(docs, pad+entry(fmt.Sprintf("e%d", i), fmt.Sprintf("e%d.example.com", i)))
	}
	live.write("large.yaml", docs...)
	fi, err := os.Stat(live.path("large.yaml"))
	require.NoError(t, err)
	require.Greater(t, fi.Size(), int64(10<<20))
	live.startSynced()
	require.Equal(t, 1100, live.table.Snapshot().Len())
	require.Equal(t, "e1099.example.com", live.host("e1099"))
}

// TestPermissions is the same with a real file system; root may read everything.
func TestPermissions(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("runs as root, and permissions do not stop root")
	}
	live := prepare(t, "a.yaml a=a1.example.com", "sub/b.yaml b=b1.example.com")
	live.startSynced()
	live.chmod("a.yaml", 0)
	live.AwaitState(sources.Degraded, live.path("a.yaml"))
	live.chmod("a.yaml", 0o600)
	live.AwaitState(sources.Healthy)
	live.chmod("sub", 0)
	live.AwaitState(sources.Degraded, live.path("sub"))
	live.chmod("sub", 0o700)
	live.AwaitState(sources.Healthy)
	live.chmod(".", 0)
	live.AwaitState(sources.Denied, live.root)
	live.chmod(".", 0o700)
	live.AwaitState(sources.Healthy)
	live.neverDeleted("a", "b")

	first := prepare(t) // at a first start, an unreadable directory does not count as empty
	first.write("a.yaml", "a=a1.example.com")
	first.write("sub/b.yaml", "b=b1.example.com")
	first.chmod("sub", 0)
	first.start()
	first.AwaitState(sources.Degraded, "not synced", first.path("sub"))
	first.notSynced()
	first.chmod("sub", 0o700)
	first.AwaitSync()
	require.Equal(t, "b1.example.com", first.host("b"))
}

func TestFile_RemovedDuringRead(t *testing.T) {
	live := prepare(t, "a.yaml a=a1.example.com", "b.yaml b=b1.example.com")
	live.startSynced()
	live.disk.plan(&live.disk.before, "a.yaml", func() { live.remove("a.yaml") })
	live.write("a.yaml", "a=a2.example.com")
	live.awaitHost("a", "")
	live.AwaitState(sources.Healthy)
	require.Empty(t, live.Status().Quarantined)
	live.neverDeleted("b")
}

func TestFile_WrittenDuringRead(t *testing.T) {
	live := prepare(t, "a.yaml a=a1.example.com b=b1.example.com")
	live.startSynced()
	// The first read finds valid YAML without b, which is still being written.
	live.disk.plan(&live.disk.during, "a.yaml", func() {
		live.disk.plan(&live.disk.during, "a.yaml", nil)
		live.overwrite("a.yaml", "a=a2.example.com", "b=b2.example.com")
	})
	live.write("a.yaml", "a=a2.example.com")
	live.awaitHost("b", "b2.example.com")
	live.awaitHost("a", "a2.example.com")
	live.neverDeleted("a", "b")
}

func TestWatcher_ReportsLostEvents(t *testing.T) {
	d := t.TempDir()
	watcher := newWatcher(osDisk{}, true, nil)
	defer watcher.close()
	watcher.enter("", d, stamp{})
	watcher.enter("sub", d+"/sub", stamp{})
	for i := range maxDirty + 1 {
		watcher.noteEvent(event(fmt.Sprintf("%s/sub/f%d.yaml", d, i)))
	}
	paths, lost := watcher.takeChanged()
	require.True(t, lost, "so many that it is simpler to look at everything")
	require.LessOrEqual(t, len(paths), maxDirty)
	watcher.noteLost()
	<-watcher.wake
	_, lost = watcher.takeChanged()
	require.True(t, lost)
	paths, lost = watcher.takeChanged()
	require.False(t, lost)
	require.Empty(t, paths)
}

func TestUnknownFieldsWarn(t *testing.T) {
	l := prepare(t)
	l.write("a.yaml", strings.Replace(entry("a", "a1.example.com"), "resolution:", "fromTheFuture: 1\n  resolution:", 1))
	l.startSynced(Settings{Texts: sources.Texts{UnknownFields: "warn"}})
	require.Equal(t, "a1.example.com", l.host("a"))
	require.Len(t, l.Status().Warnings, 1)
	require.Contains(t, l.Status().Warnings[0], "fromTheFuture")
	l.change("a.yaml", "a=a2.example.com")
	l.Await("the warning ends", func() bool { return len(l.Status().Warnings) == 0 })
}
