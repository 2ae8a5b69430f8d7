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
			require.Empty(t, l.Status().Conflicts)
		})
	}
}

func (l *live) awaitPlace(name, place string) {
	l.t.Helper()
	l.Await(name+" is at "+place, func() bool { return l.place(name) == l.path(place) })
}

func TestDirectories_AddedRemovedAndMoved(t *testing.T) {
	live := prepare(t, "keep.yaml keep=keep.example.com")
	live.startSynced()

	live.change("one/two/a.yaml", "a=a1.example.com")
	live.change("one/two/a.yaml", "a=a2.example.com")

	live.rename("one", "uno")
	live.awaitPlace("a", "uno/two/a.yaml:1")
	live.change("uno/two/a.yaml", "a=a3.example.com")
	live.change("uno/two/b.yaml", "b=b1.example.com")
	live.neverDeleted("a")

	// Two directories change places: the same paths are other directories now.
	live.change("dos/two/c.yaml", "c=c1.example.com")
	live.rename("uno", "tmp")
	live.rename("dos", "uno")
	live.rename("tmp", "dos")
	live.awaitPlace("a", "dos/two/a.yaml:1")
	live.awaitPlace("c", "uno/two/c.yaml:1")
	live.change("dos/two/a.yaml", "a=a4.example.com")
	live.change("uno/two/c.yaml", "c=c2.example.com")

	// Removed and made again: the watch of the old one is of no use.
	live.remove("dos")
	live.awaitHost("a", "")
	live.change("dos/two/a.yaml", "a=a5.example.com")
	live.change("dos/two/a.yaml", "a=a6.example.com")
	live.remove("uno")
	live.awaitHost("c", "")
	live.neverDeleted("keep")
}

func TestLinks(t *testing.T) {
	t.Run("to a file elsewhere, rewritten, replaced, and led elsewhere", func(t *testing.T) {
		live := prepare(t, "../out/v1/a a=v1.example.com", "../out/v2/a a=v2.example.com")
		live.follow = true
		live.link("v1", "../out/current")
		live.link("../out/current/a", "a.yaml")
		live.startSynced()
		require.Equal(t, "v1.example.com", live.host("a"))
		live.overwrite("../out/v1/a", "a=v1b.example.com")
		live.awaitHost("a", "v1b.example.com")
		live.write("../out/v1/tmp", "a=v1c.example.com")
		live.rename("../out/v1/tmp", "../out/v1/a")
		live.awaitHost("a", "v1c.example.com")
		live.link("v2", "../out/next")
		live.rename("../out/next", "../out/current")
		live.awaitHost("a", "v2.example.com")
		live.change("../out/v2/a", "a=v2b.example.com")
		live.neverDeleted("a")
		live.remove("a.yaml")
		live.awaitHost("a", "")
	})
	t.Run("to a directory, swapped", func(t *testing.T) {
		live := prepare(t,
			"../v1/sub/a.yaml a=v1.example.com",
			"../v1/only.yaml only=v1.example.com",
			"../v2/sub/a.yaml a=v2.example.com")
		live.follow = true
		live.link("../v1", "current")
		live.startSynced()
		require.Equal(t, "v1.example.com", live.host("a"))
		live.relink("../v2", "current")
		live.awaitHost("a", "v2.example.com")
		live.awaitHost("only", "")
		live.change("../v2/sub/a.yaml", "a=v2b.example.com")
		live.neverDeleted("a")
	})
	t.Run("as Kubernetes mounts a ConfigMap", func(t *testing.T) {
		live := prepare(t, "..2026_01/a.yaml a=v1.example.com", "..2026_01/gone.yaml gone=v1.example.com")
		live.link("..2026_01", "..data")
		live.link("..data/a.yaml", "a.yaml")
		live.link("..data/gone.yaml", "gone.yaml")
		live.startSynced()
		require.Equal(t, 2, live.table.Snapshot().Len())
		require.Empty(t, live.Status().Conflicts, "the hidden directory must not be read twice")
		for _, v := range []string{"v2", "v3"} { // kubelet: new directory, link renamed over, old names and directory removed
			live.write("..2026_"+v+"/a.yaml", entry("a", v+".example.com"))
			live.link("..2026_"+v, "..data_tmp")
			old, err := os.Readlink(live.path("..data"))
			require.NoError(t, err)
			live.rename("..data_tmp", "..data")
			live.remove("gone.yaml")
			live.remove(old)
			live.awaitHost("a", v+".example.com")
			live.awaitHost("gone", "")
		}
		live.neverDeleted("a")
		live.AwaitState(sources.Healthy)
	})
	t.Run("in a circle", func(t *testing.T) {
		live := prepare(t, "sub/a.yaml a=a.example.com")
		live.link("..", "sub/up")
		live.link(".", "sub/self")
		live.link("/", "sub/root")
		live.startSynced()
		require.Equal(t, 1, live.table.Snapshot().Len())
		live.AwaitState(sources.Degraded, "sub/root", "sub/self", "sub/up", "a directory above it")
	})
	t.Run("turned into a circle keeps its objects during the grace", func(t *testing.T) {
		live := prepare(t,
			"../out/a.yaml a=a.example.com",
			"keep.yaml keep=keep1.example.com",
			"gone.yaml gone=gone.example.com")
		live.follow = true
		live.link("../out", "sub")
		live.startSynced(Settings{EmptyGrace: time.Hour})
		live.relink(".", "sub")
		live.remove("gone.yaml")
		live.AwaitState(sources.Degraded, live.path("sub")+" is a link to a directory above it")
		live.awaitHost("gone", "") // files missing longer than the quiet delay were withdrawn
		live.change("keep.yaml", "keep=keep2.example.com")
		live.neverDeleted("a", "keep")
	})
	t.Run("turned into a circle withdraws its objects after the grace", func(t *testing.T) {
		live := prepare(t,
			"../out/a.yaml a=a.example.com",
			"../out/b b=b.example.com",
			"keep.yaml keep=keep.example.com")
		live.follow = true
		live.link("../out", "sub")
		live.link("../out/b", "b.yaml")
		live.startSynced(Settings{EmptyGrace: 20 * time.Millisecond})
		require.Equal(t, 3, live.table.Snapshot().Len())
		live.relink(".", "sub")
		live.awaitHost("a", "")
		live.AwaitState(sources.Degraded, live.path("sub")+" is a link to a directory above it")
		live.relink("b.yaml", "b.yaml")
		live.awaitHost("b", "")
		live.AwaitState(sources.Degraded, live.path("b.yaml"))
		live.relink("../out", "sub")
		live.awaitHost("a", "a.example.com")
		live.neverDeleted("keep")
	})
	t.Run("to nowhere keeps the target's objects", func(t *testing.T) {
		live := prepare(t, "../out/a a=a1.example.com")
		live.follow = true
		live.link("../out/a", "a.yaml")
		live.startSynced()
		live.AwaitState(sources.Healthy)
		live.remove("../out/a")
		live.AwaitState(sources.Degraded, "a.yaml is a link that leads nowhere")
		live.change("../out/a", "a=a2.example.com")
		live.AwaitState(sources.Healthy)
		live.neverDeleted("a")
	})
	t.Run("to an ignored file is watched", func(t *testing.T) {
		live := prepare(t)
		live.follow = true
		live.write("../out/d", "a file that does not count")
		live.link("../out/d", "sub")
		live.link("/dev/null", "../out/current")
		live.link("../out/current", "b.yaml")
		live.write("keep.yaml", "keep=keep.example.com")
		live.startSynced()
		require.Equal(t, 1, live.table.Snapshot().Len())
		live.remove("../out/d")
		live.change("../out/d/a.yaml", "a=a.example.com")
		live.write("../out/b", "b=b.example.com")
		live.link("b", "../out/next")
		live.rename("../out/next", "../out/current")
		live.awaitHost("b", "b.example.com")
	})
	t.Run("one directory by two names", func(t *testing.T) {
		live := prepare(t, "real/a.yaml a=a1.example.com")
		live.link("real", "alias")
		live.startSynced()
		require.Len(t, live.Status().Conflicts, 1)
		require.Equal(t, live.path("alias/a.yaml")+":1", live.Status().Conflicts[0].Winner)
		live.change("real/a.yaml", "a=a2.example.com")
		live.remove("alias")
		live.Await("the conflict ends", func() bool { return len(live.Status().Conflicts) == 0 })
		live.change("real/a.yaml", "a=a3.example.com")
		live.neverDeleted("a")
	})
}

// TestLinksOutOfTheRoot has links to files that only the program may read, present from the start and created later.
func TestLinksOutOfTheRoot(t *testing.T) {
	t.Run("are named, and not followed", func(t *testing.T) {
		l := prepare(t)
		l.write("../secret", "password")
		l.write("../out/b.yaml", "b=b.example.com")
		l.write("a.yaml", "a=a.example.com")
		l.link("../secret", "notes.txt") // which is not read
		l.startSynced()
		l.AwaitState(sources.Healthy)
		l.link("../secret", "c.yaml")
		l.link(l.path("../out"), "sub")
		l.AwaitState(sources.Degraded, l.path("c.yaml")+" leads out of the source's directory, to "+l.path("../secret"), l.path("sub"),
			"followLinks: true")
		require.Equal(t, 1, l.table.Snapshot().Len())
		require.Empty(t, l.Status().Quarantined)
		require.Zero(t, l.disk.opens("c.yaml"), "it is not even opened")
		l.remove("c.yaml")
		l.remove("sub")
		l.AwaitState(sources.Healthy)
	})
	t.Run("keep the objects of their earlier target", func(t *testing.T) {
		l := prepare(t, "../out a=a.example.com", "a.yaml a=a.example.com")
		l.startSynced()
		l.relink("../out", "a.yaml")
		l.AwaitState(sources.Degraded, "a.yaml leads out")
		l.change("b.yaml", "b=b.example.com")
		l.neverDeleted("a")
	})
	t.Run("keep a first start from being taken for whole", func(t *testing.T) {
		l := prepare(t, "../out a=a.example.com", "b.yaml b=b.example.com")
		l.link("../out", "a.yaml")
		l.start()
		l.AwaitState(sources.Degraded, "not synced", "followLinks: true")
		require.False(t, l.table.Synced())
	})
	t.Run("are refused when a file becomes one after the look", func(t *testing.T) {
		l := prepare(t, "../secret a=secret.example.com", "a.yaml a=a.example.com", "b.yaml b=b.example.com")
		l.disk.plan(&l.disk.before, "a.yaml", sync.OnceFunc(func() {
			l.relink("../secret", "a.yaml")
		}))
		l.startSynced()
		l.AwaitState(sources.Degraded, "a.yaml leads out")
		require.Empty(t, l.host("a"))
	})
	t.Run("are not those that lead back, or are absolute", func(t *testing.T) {
		l := prepare(t, "sub/a a=a.example.com")
		l.link(l.path("sub/a"), "a.yaml")
		l.link("../rules/sub/a", "b.yaml")
		l.startSynced()
		l.AwaitState(sources.Healthy)
		require.Equal(t, "a.example.com", l.host("a"))
		require.Len(t, l.Status().Conflicts, 1)
	})
}

// TestEmptiedFile is "generate > a.yaml": the file is empty for as long as the program runs.
func TestEmptiedFile(t *testing.T) {
	t.Run("between the look and the read", func(t *testing.T) {
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
	})
	for name, text := range map[string]string{
		"an empty file": "", "white space": " \n\t\n", "a mark": "---\n",
		"a comment": "# to be generated\n---\n\n",
	} {
		t.Run(name+" is waited for", func(t *testing.T) {
			live := prepare(t,
				"a.yaml a=a1.example.com",
				"b.yaml b=b1.example.com",
				"gone.yaml gone=gone.example.com")
			live.startSynced(Settings{EmptyGrace: time.Hour})
			live.overwrite("a.yaml", text)
			live.remove("gone.yaml")
			live.awaitHost("gone", "") // files missing longer than the quiet delay were withdrawn
			live.change("b.yaml", "b=b2.example.com")
			require.Equal(t, "a1.example.com", live.host("a"))
			live.overwrite("a.yaml", "a=a2.example.com")
			live.awaitHost("a", "a2.example.com")
			live.neverDeleted("a", "b")
		})
		t.Run(name+" stays so", func(t *testing.T) {
			live := prepare(t, "a.yaml a=a1.example.com")
			live.startSynced(Settings{EmptyGrace: 20 * time.Millisecond})
			live.overwrite("a.yaml", text)
			live.awaitHost("a", "")
		})
		t.Run(name+" is removed", func(t *testing.T) {
			live := prepare(t, "a.yaml a=a1.example.com")
			live.startSynced(Settings{EmptyGrace: time.Hour})
			live.overwrite("a.yaml", text)
			live.remove("a.yaml")
			live.awaitHost("a", "")
		})
	}
}

func TestConflict_FirstPathWins(t *testing.T) {
	live := prepare(t, "b.yaml x=b.example.com")
	live.startSynced()
	live.write("c.yaml", "x=c.example.com")
	live.Await("a conflict", func() bool { return len(live.Status().Conflicts) == 1 })
	require.Equal(t, "b.example.com", live.host("x"))
	live.write("a.yaml", "x=a.example.com", "x=a2.example.com")
	live.awaitHost("x", "a.example.com")
	c := live.Status().Conflicts[0]
	require.Equal(t, keyOf("x"), c.Key())
	require.Equal(t, live.path("a.yaml")+":1", c.Winner)
	require.Len(t, c.Losers, 3)
	live.remove("a.yaml")
	live.awaitHost("x", "b.example.com")
	live.remove("b.yaml")
	live.awaitHost("x", "c.example.com")
	live.neverDeleted("x")
	live.remove("c.yaml")
	live.awaitHost("x", "")
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
	require.Empty(t, live.Status().Conflicts)
}
