package file

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tributary/internal/worker"
)

// TestWatchesFollowTheTree checks, through random histories, that what is watched is what a watcher would watch that was
// made just now: nothing is missed, and nothing is watched in vain.
func TestWatchesFollowTheTree(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		base, err := os.MkdirTemp(t.TempDir(), "") //nolint:usetesting // one for each check
		require.NoError(rt, err)
		root := filepath.Join(base, "root")
		require.NoError(rt, os.Mkdir(root, 0o700))
		require.NoError(rt, os.MkdirAll(filepath.Join(base, "outside", "x"), 0o700))
		workers, _ := worker.New(t.Context())
		defer workers.Stop()
		w := newWatcher(osDisk{}, false, workers)
		defer w.close()
		lookAt(rt, root, w, "")

		path := rapid.Custom(func(t *rapid.T) string {
			name := rapid.SampledFrom([]string{"a", "b", "c.yaml"})
			return filepath.Join(rapid.SliceOfN(name, 1, 3).Draw(t, "path")...)
		})
		for range rapid.IntRange(1, 15).Draw(rt, "steps") {
			p, q := path.Draw(rt, "p"), path.Draw(rt, "q")
			in := func(p string) string { return filepath.Join(root, p) }
			// What cannot be done is not done.
			switch rapid.SampledFrom([]string{"mkdir", "write", "remove", "rename", "link", "link outside"}).Draw(rt, "do") {
			case "mkdir":
				_ = os.MkdirAll(in(p), 0o700)
			case "write":
				_ = os.WriteFile(in(p), []byte("x"), 0o600)
			case "remove":
				_ = os.RemoveAll(in(p))
			case "rename":
				_ = os.Rename(in(p), in(q))
			case "link":
				_ = os.Symlink(in(p), in(q))
			case "link outside":
				_ = os.Symlink(filepath.Join(base, "outside"), in(q))
			}
			lookAt(rt, root, w, rapid.SampledFrom([]string{"", p, q}).Draw(rt, "look at"))
		}
		lookAt(rt, root, w, "")

		fresh := newWatcher(osDisk{}, false, workers)
		defer fresh.close()
		lookAt(rt, root, fresh, "")
		require.Equal(rt, fresh.dirs, w.dirs)
		require.Equal(rt, fresh.anchors, w.anchors)
		require.ElementsMatch(rt, slices.Collect(maps.Keys(fresh.targets)), slices.Collect(maps.Keys(w.targets)))
		require.ElementsMatch(rt, fresh.events.WatchList(), w.events.WatchList())
	})
}

func lookAt(t *rapid.T, root string, w *watcher, path string) {
	_, err := look(t.Context(), osDisk{}, root, w, map[string]bool{path: true})
	require.NoError(t, err)
}
