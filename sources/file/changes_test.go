package file

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources"
)

func TestDirectoryTree_Read(t *testing.T) {
	l := prepare(t, "a.yaml a1=a1.example.com a2=a2.example.com", "deep/er/b.yml b=b.example.com")
	l.write("c.json", `{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","metadata":{"name":"c"},
		"spec":{"hosts":["c.example.com"],"ports":[{"number":80,"name":"http","protocol":"HTTP"}],"resolution":"DNS"}}`)
	l.write("list.yaml", "apiVersion: v1\nkind: List\nitems:\n- apiVersion: networking.istio.io/v1\n  kind: ServiceEntry\n"+
		"  metadata: {name: listed}\n  spec: {hosts: [listed.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}\n")
	for _, name := range []string{".hidden.yaml", ".git/x.yaml", "backup.yaml~", "#auto.yaml#", "x.yaml.bak", ".x.yaml.swp", "notes.txt"} {
		l.write(name, "no: object\n")
	}
	require.NoError(t, os.Mkdir(l.path("directory.yaml"), 0o700))
	l.startSynced()
	for _, name := range []string{"a1", "a2", "b", "c", "listed"} {
		require.Equal(t, name+".example.com", l.host(name))
	}
	require.Equal(t, 5, l.table.Snapshot().Len())
	require.Empty(t, l.Status().Quarantined)
	require.Equal(t, l.path("deep/er/b.yml")+":1", l.place("b"))
}

func TestSingleFile_Read(t *testing.T) {
	live := prepare(t)
	live.write("rules.conf", "a=a1.example.com") // whatever it is called
	live.write("other.yaml", "b=b.example.com")
	live.root = live.path("rules.conf")
	live.startSynced()
	require.Equal(t, 1, live.table.Snapshot().Len())
	require.Equal(t, live.root+":1", live.place("a"))

	require.NoError(t, os.WriteFile(live.root+".new", []byte(entry("a", "a2.example.com")), 0o600))
	require.NoError(t, os.Rename(live.root+".new", live.root))
	live.awaitHost("a", "a2.example.com")
	require.NoError(t, os.WriteFile(live.root, []byte(entry("a", "a3.example.com")), 0o600))
	live.awaitHost("a", "a3.example.com")

	require.NoError(t, os.Remove(live.root))
	live.AwaitState(sources.Unreachable, live.root)
	require.NoError(t, os.WriteFile(live.root, []byte(entry("a", "a4.example.com")), 0o600))
	live.awaitHost("a", "a4.example.com")
	live.neverDeleted("a")
}

func TestChange_ReadsChangedFilesOnly(t *testing.T) {
	live := prepare(t, "a.yaml a=a1.example.com", "b.yaml b=b1.example.com")
	live.startSynced()
	require.Equal(t, 1, live.disk.opens("b.yaml"))
	live.change("a.yaml", "a=a2.example.com")
	live.change("sub/c.yaml", "c=c1.example.com")
	require.Equal(t, 1, live.disk.opens("b.yaml"))
}

func TestRewrittenFile_DeletesNoObject(t *testing.T) {
	t.Parallel()
	const quiet = 100 * time.Millisecond
	twoSteps := func(l *live, first, second func()) {
		began := time.Now()
		first()
		second()
		if time.Since(began) >= quiet {
			l.t.Skip("the test was held up between two steps: it was quiet for long enough for a deletion")
		}
	}
	for name, change := range map[string]func(l *live){
		"rename over": func(l *live) {
			l.write("a.yaml.tmp", "a=a2.example.com")
			l.rename("a.yaml.tmp", "a.yaml")
		},
		"remove and write": func(l *live) {
			twoSteps(l, func() { l.remove("a.yaml") }, func() { l.overwrite("a.yaml", "a=a2.example.com") })
		},
		"backup and write": func(l *live) {
			twoSteps(l, func() { l.rename("a.yaml", "a.yaml~") }, func() { l.overwrite("a.yaml", "a=a2.example.com") })
		},
		"moved to a later name": func(l *live) {
			l.rename("a.yaml", "z.yaml")
			l.awaitPlace("a", "z.yaml:1")
			l.write("z.yaml", "a=a2.example.com")
		},
		"moved to an earlier name": func(l *live) {
			l.rename("a.yaml", "0.yaml")
			l.awaitPlace("a", "0.yaml:1")
			l.write("0.yaml", "a=a2.example.com")
		},
		"moved to another directory": func(l *live) {
			require.NoError(l.t, os.Mkdir(l.path("sub"), 0o700))
			l.rename("a.yaml", "sub/a.yaml")
			l.awaitPlace("a", "sub/a.yaml:1")
			l.write("sub/a.yaml", "a=a2.example.com")
		},
		"truncate and write": func(l *live) {
			l.overwrite("a.yaml", "")
			l.overwrite("a.yaml", "a=a2.example.com")
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := prepare(t, "a.yaml a=a1.example.com")
			l.startSynced(Settings{QuietDelay: quiet})
			change(l)
			l.awaitHost("a", "a2.example.com")
			l.neverDeleted("a")
			require.Empty(t, l.Status().Duplicates)
		})
	}
}

func (l *live) awaitPlace(name, place string) {
	l.t.Helper()
	l.Await(name+" is at "+place, func() bool { return l.place(name) == l.path(place) })
}

// TestFile_SwappedForLinkAfterLook has a file become a link out of the root between the look and the read.
func TestFile_SwappedForLinkAfterLook(t *testing.T) {
	l := prepare(t, "../secret a=secret.example.com", "a.yaml a=a.example.com", "b.yaml b=b.example.com")
	l.disk.plan(&l.disk.before, "a.yaml", sync.OnceFunc(func() {
		l.relink("../secret", "a.yaml")
	}))
	l.startSynced()
	l.AwaitState(sources.Degraded, "a.yaml leads out")
	require.Empty(t, l.host("a"))
}

// TestFile_EmptiedAfterLook is "generate > a.yaml" between the look and the read.
func TestFile_EmptiedAfterLook(t *testing.T) {
	live := prepare(t, "a.yaml a=a1.example.com")
	live.startSynced(Settings{EmptyGrace: time.Hour})
	var emptied atomic.Bool
	live.disk.plan(&live.disk.before, "a.yaml", func() {
		if !emptied.Swap(true) {
			_ = os.WriteFile(live.path("a.yaml"), nil, 0o600) // generate > a.yaml
		}
	})
	live.overwrite("a.yaml", "a=a2.example.com")
	live.Await("it was emptied", emptied.Load)
	live.change("b.yaml", "b=b1.example.com")
	live.neverDeleted("a")
}

func TestRoot_RemovedAndRestored(t *testing.T) {
	t.Run("missing with its parents", func(t *testing.T) {
		l := prepare(t)
		l.root = l.path("not/yet/there")
		l.start()
		l.AwaitState(sources.Unreachable, l.root)
		require.False(t, l.table.Synced())
		l.change("a.yaml", "a=a1.example.com")
		l.AwaitState(sources.Healthy)
		l.change("a.yaml", "a=a2.example.com")
	})
	t.Run("removed and made again", func(t *testing.T) {
		l := prepare(t, "sub/a.yaml a=a1.example.com")
		l.startSynced()
		l.remove("")
		l.AwaitState(sources.Unreachable, l.root)
		l.change("sub/a.yaml", "a=a2.example.com")
		l.change("sub/a.yaml", "a=a3.example.com")
	})
	t.Run("moved away, and another one in its place", func(t *testing.T) {
		l := prepare(t, "sub/a.yaml a=a1.example.com")
		l.startSynced()
		require.NoError(t, os.Rename(l.root, l.root+".old"))
		l.AwaitState(sources.Unreachable, l.root)
		next := &live{t: t, root: l.root + ".next"}
		next.write("sub/a.yaml", "a=a2.example.com")
		require.NoError(t, os.Rename(next.root, l.root))
		l.awaitHost("a", "a2.example.com")
		l.change("sub/a.yaml", "a=a3.example.com")
		l.neverDeleted("a")
	})
	t.Run("its file system is unmounted", func(t *testing.T) {
		l := prepare(t, "a.yaml a=a1.example.com")
		l.startSynced(Settings{RescanInterval: 100 * time.Millisecond})
		mount := func(moved, from, to string) { // in one moment
			l.disk.set(func() {
				l.disk.moved = moved
				l.rename(from, to)
			})
		}
		mount("rules", "a.yaml", ".a.yaml")
		l.AwaitState(sources.Unreachable, "another file system")
		l.overwrite(".a.yaml", "a=a2.example.com")
		mount("", ".a.yaml", "a.yaml")
		l.awaitHost("a", "a2.example.com")
		l.neverDeleted("a")
	})
	t.Run("a directory above it is swapped", func(t *testing.T) {
		l := prepare(t)
		base := l.root
		l.root = filepath.Join(base, "up/mid/rules")
		l.write("sub/a.yaml", "a=a1.example.com")
		l.startSynced()
		swap := func(directory string, n int) {
			l.t.Helper()
			path := filepath.Join(base, directory)
			next := &live{t: t, root: filepath.Join(path+".next", strings.TrimPrefix(l.root, path))}
			host := fmt.Sprintf("a%d.example.com", n)
			next.write("sub/a.yaml", entry("a", host))
			require.NoError(t, os.Rename(path, fmt.Sprintf("%s.%d", path, n)))
			require.NoError(t, os.Rename(path+".next", path))
			l.awaitHost("a", host)
			l.write("sub/a.yaml", entry("a", "again."+host))
			l.awaitHost("a", "again."+host)
		}
		swap("up", 2)
		swap("up/mid", 3)
		swap("up", 4)
		swap("up/mid/rules", 5)
		l.neverDeleted("a")
	})
	t.Run("is a link that is swapped", func(t *testing.T) {
		l := prepare(t, "v1/a.yaml a=a1.example.com", "v2/a.yaml a=a2.example.com")
		l.link("v1", "current")
		inner := l.root
		l.root = filepath.Join(inner, "current")
		l.startSynced()
		require.NoError(t, os.Symlink("v2", filepath.Join(inner, "next")))
		require.NoError(t, os.Rename(filepath.Join(inner, "next"), l.root))
		l.awaitHost("a", "a2.example.com")
		l.change("a.yaml", "a=a3.example.com")
		l.neverDeleted("a")
	})
}

func TestContinuousChanges_PublishedWithinMaxDelay(t *testing.T) {
	live := prepare(t, "a.yaml a=a1.example.com", "gone.yaml gone=gone.example.com")
	live.startSynced(Settings{QuietDelay: 50 * time.Millisecond, MaxDelay: 100 * time.Millisecond})
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				_ = os.WriteFile(live.path("noise.yaml"), nil, 0o600)
			}
		}
	}()
	live.write("a.yaml", "a=a2.example.com")
	live.remove("gone.yaml")
	live.awaitHost("a", "a2.example.com")
	live.awaitHost("gone", "")
	close(stop)
	<-stopped
	live.neverDeleted("a")
}

func TestChangedRoot_ReplacesObjects(t *testing.T) {
	l := prepare(t, "both.yaml both=old.example.com", "old.yaml old=old.example.com moved=old.example.com")
	l.startSynced()
	replacement := filepath.Join(t.TempDir(), "other")
	require.NoError(t, os.Mkdir(replacement, 0o700))
	next, err := New("fs://"+replacement, Settings{QuietDelay: 10 * time.Millisecond})
	require.NoError(t, err)
	l.root = replacement
	l.write("both.yaml", "both=new.example.com")
	l.write("zzz.yaml", "moved=new.example.com")
	require.NoError(t, l.Supervisor.Reconfigure([]sources.Spec{{Name: "rules", Table: l.table, Address: "fs://" + replacement, Source: next}}))
	l.awaitHost("both", "new.example.com")
	l.awaitHost("moved", "new.example.com")
	l.awaitHost("old", "")
	l.neverDeleted("both", "moved")
}

func TestSimultaneousChanges_PublishedOnce(t *testing.T) {
	live := prepare(t)
	for _, name := range []string{"a", "b", "c"} {
		live.write(name+".yaml", entry(name, name+".example.com"))
	}
	live.startSynced()
	require.Equal(t, 1, live.Status().Publishes)
	live.rename("b.yaml", "z.yaml")
	live.awaitPlace("b", "z.yaml:1")
	require.Equal(t, 2, live.Status().Publishes)
	require.Equal(t, 3, live.Status().Groups)
	require.Empty(t, live.Status().Duplicates)
}
