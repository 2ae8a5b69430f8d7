package file

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tributary/internal/worker"
)

// TestWatchesFollowTheTree checks, through random histories, that the watches equal those of a new watcher: none is
// missing, and none is left over.
func TestWatchesFollowTheTree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		base, err := os.MkdirTemp(t.TempDir(), "") //nolint:usetesting // one for each check
		require.NoError(rt, err)
		root := filepath.Join(base, "up", "mid", "root")
		require.NoError(rt, os.MkdirAll(root, 0o700))
		require.NoError(rt, os.MkdirAll(filepath.Join(base, "outside", "x"), 0o700))
		workers, _ := worker.New(t.Context())
		defer workers.Stop()
		watcher := newWatcher(osDisk{}, false, workers)
		defer watcher.close()
		lookAt(rt, root, watcher, "")

		path := rapid.Custom(func(t *rapid.T) string {
			name := rapid.SampledFrom([]string{"a", "b", "c.yaml"})
			return filepath.Join(rapid.SliceOfN(name, 1, 3).Draw(t, "path")...)
		})
		for range rapid.IntRange(1, 15).Draw(rt, "steps") {
			p, q := path.Draw(rt, "p"), path.Draw(rt, "q")
			below := func(p string) string { return filepath.Join(root, p) }
			// Impossible operations are skipped.
			switch rapid.SampledFrom([]string{"mkdir", "write", "remove", "rename", "link", "link outside", "swap above"}).Draw(rt, "do") {
			case "mkdir":
				_ = os.MkdirAll(below(p), 0o700)
			case "write":
				_ = os.WriteFile(below(p), []byte("x"), 0o600)
			case "remove":
				_ = os.RemoveAll(below(p))
			case "rename":
				_ = os.Rename(below(p), below(q))
			case "link":
				_ = os.Symlink(below(p), below(q))
			case "link outside":
				_ = os.Symlink(filepath.Join(base, "outside"), below(q))
			case "swap above":
				directory := filepath.Join(base, rapid.SampledFrom([]string{"up", "up/mid", "up/mid/root"}).Draw(rt, "at"))
				require.NoError(rt, os.Rename(directory, directory+".old"))
				if rapid.Bool().Draw(rt, "look between") {
					_, err := takeSighting(t.Context(), osDisk{}, root, true, watcher, map[string]bool{"": true})
					require.ErrorIs(rt, err, fs.ErrNotExist)
				}
				require.NoError(rt, os.MkdirAll(root, 0o700))
				require.NoError(rt, os.RemoveAll(directory+".old"))
				lookAt(rt, root, watcher, "")
			}
			lookAt(rt, root, watcher, rapid.SampledFrom([]string{"", p, q}).Draw(rt, "look at"))
		}
		lookAt(rt, root, watcher, "")

		fresh := newWatcher(osDisk{}, false, workers)
		defer fresh.close()
		lookAt(rt, root, fresh, "")
		require.Equal(rt, fresh.dirs, watcher.dirs)
		require.Equal(rt, fresh.anchors, watcher.anchors)
		require.Equal(rt, aims(fresh), aims(watcher))
		require.ElementsMatch(rt, fresh.events.WatchList(), watcher.events.WatchList())
	})
}

// aims returns the paths watched for each real directory, in order.
func aims(w *watcher) map[string]target {
	targets := make(map[string]target)
	for real, t := range w.targets {
		sorted := target{directories: slices.Sorted(slices.Values(t.directories)), names: make(map[string][]string)}
		for name, paths := range t.names {
			sorted.names[name] = slices.Sorted(slices.Values(paths))
		}
		targets[real] = sorted
	}
	return targets
}

func lookAt(t *rapid.T, root string, w *watcher, path string) {
	_, err := takeSighting(t.Context(), osDisk{}, root, true, w, map[string]bool{path: true})
	require.NoError(t, err)
}

// TestDirectory_FoundUnderNewNameFirst: a look comes across a directory that was renamed before the events of that have arrived.
func TestDirectory_FoundUnderNewNameFirst(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	below := func(p string) string { return filepath.Join(root, p) }
	require.NoError(t, os.MkdirAll(below("old/sub"), 0o700))
	events, err := fsnotify.NewWatcher()
	require.NoError(t, err)
	watcher := newWatcher(osDisk{}, true, nil)
	watcher.events = events // only this test reads the events
	defer watcher.close()
	looks := func(paths ...string) {
		changed := make(map[string]bool)
		for _, p := range paths {
			changed[p] = true
		}
		_, err := takeSighting(t.Context(), osDisk{}, root, true, watcher, changed)
		require.NoError(t, err)
	}
	awaitDirty := func(path string) (dirty []string) {
		timeout := time.After(20 * time.Second)
		for {
			select {
			case e := <-events.Events:
				watcher.noteEvent(e)
			case <-timeout:
				require.Fail(t, "no event arrived", path)
			}
			if _, ok := watcher.dirty[path]; ok {
				paths, _ := watcher.takeChanged()
				return slices.Sorted(maps.Keys(paths))
			}
		}
	}
	looks("")
	require.NoError(t, os.Mkdir(below("new"), 0o700))
	awaitDirty("new")
	require.NoError(t, os.Rename(below("old"), below("new/name")))
	looks("new") // it has heard of this only
	awaitDirty("old")
	looks("old") // and now of this
	for _, p := range []string{"new/name/a.yaml", "new/name/sub/b.yaml"} {
		require.NoError(t, os.WriteFile(below(p), []byte("x"), 0o600))
		awaitDirty(p)
	}
}

// bound is a disk on which one directory is mounted in the place of another one, too.
type bound struct {
	osDisk
	mountPoint, origin string
}

func (b bound) Lstat(path string) (fs.FileInfo, error) {
	if path == b.mountPoint {
		path = b.origin
	}
	return b.osDisk.Lstat(path)
}

// TestDirectoryMountedTwice_DegradesStatus: the kernel reports changes under one of its names only, and the status says so.
func TestDirectoryMountedTwice_DegradesStatus(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	for _, name := range []string{"a", "b"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, name), 0o700))
	}
	disk := bound{mountPoint: filepath.Join(root, "b"), origin: filepath.Join(root, "a")}
	events, err := fsnotify.NewWatcher()
	require.NoError(t, err)
	watcher := newWatcher(disk, true, nil)
	watcher.events = events
	defer watcher.close()
	_, err = takeSighting(t.Context(), disk, root, true, watcher, map[string]bool{"": true})
	require.NoError(t, err)
	dirs, err := watcher.blindness()
	require.Equal(t, 1, dirs)
	require.ErrorContains(t, err, "are one directory, mounted twice")
	require.NotContains(t, events.WatchList(), disk.mountPoint)
	require.Contains(t, events.WatchList(), disk.origin)
}

// swappingDisk has something happen before a directory is listed.
type swappingDisk struct {
	osDisk
	swap func(name string)
}

func (d swappingDisk) ReadDir(root, name string) ([]fs.DirEntry, error) {
	d.swap(name)
	return d.osDisk.ReadDir(root, name)
}

// A directory that is swapped for a link out of the root is not listed, unless such links are followed.
func TestDirectorySwappedForLink_NotListed(t *testing.T) {
	for _, out := range []bool{false, true} {
		root, outside := t.TempDir(), t.TempDir()
		sub := filepath.Join(root, "sub")
		require.NoError(t, os.Mkdir(sub, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(outside, "secret.yaml"), []byte("{}"), 0o600))
		watcher := newWatcher(osDisk{}, true, nil)
		seen, err := takeSighting(t.Context(), swappingDisk{swap: func(name string) {
			if filepath.Base(name) == "sub" {
				require.NoError(t, os.Rename(sub, filepath.Join(outside, "moved")))
				require.NoError(t, os.Symlink(outside, sub))
			}
		}}, root, out, watcher, map[string]bool{"": true})
		watcher.close()
		require.NoError(t, err)
		if out {
			require.Contains(t, seen.files, "sub/secret.yaml")
			continue
		}
		require.Empty(t, seen.files)
		require.ErrorContains(t, seen.blocked["sub"], "leads out of the source's directory")
	}
}
