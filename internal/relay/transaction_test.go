package relay

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/adsc"
	"tributary/config"
	"tributary/sources"
)

// subscribeBoth looks by both variants of the protocol.
func subscribeBoth(t *testing.T, r *rig, check func(reader string, now contents)) []*client {
	t.Helper()
	return []*client{look(t, r.XDS().String(), adsc.SotW, check), look(t, r.XDS().String(), adsc.Delta, check)}
}

func see(t *testing.T, clients []*client, names ...string) {
	t.Helper()
	for _, c := range clients {
		c.sees(t, names...)
	}
}

const x, w, z = "ServiceEntry shop/x", "ServiceEntry shop/w", "ServiceEntry shop/z"

// quick are settings of files that change soon.
const quick = ", quietDelay: 1ms, rescanInterval: 100ms"

// TestTrade lets two sources trade directories while both cannot be read.
func TestTrade(t *testing.T) {
	t.Parallel()
	for _, unreadable := range []bool{false, true} {
		dir := t.TempDir()
		write(t, dir+"/one/f.yaml", entry("shop", "x", 80))
		write(t, dir+"/two/f.yaml", entry("shop", "w", 80))
		configured(t, dir, "name: a, address: 'fs://./one'"+quick, "name: b, address: 'fs://./two'"+quick)
		rig := start(t, dir)
		clients := subscribeBoth(t, rig, never(t, x, w))
		see(t, clients, x, w)
		if unreadable {
			require.NoError(t, os.Rename(dir+"/one", dir+"/one.away"))
			require.NoError(t, os.Rename(dir+"/two", dir+"/two.away"))
		}
		for range 5 {
			rig.reload(t, "name: b, address: 'fs://./one'"+quick, "name: a, address: 'fs://./two'"+quick)
			rig.reload(t, "name: a, address: 'fs://./one'"+quick, "name: b, address: 'fs://./two'"+quick)
		}
		assert.Equal(t, http.StatusOK, rig.ready(t))
		see(t, clients, x, w)
	}
}

// TestTakeover lets a source replace another one that cannot be read any more.
func TestTakeover(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir+"/one/f.yaml", entry("shop", "x", 80))
	write(t, dir+"/two/f.yaml", entry("shop", "w", 80))
	configured(t, dir, "name: a, address: 'fs://./one'"+quick, "name: b, address: 'fs://./two'"+quick)
	rig := start(t, dir)
	clients := subscribeBoth(t, rig, never(t, w))
	see(t, clients, x, w)
	require.NoError(t, os.Rename(dir+"/two", dir+"/two.away"))
	rig.reload(t, "name: a, address: 'fs://./two'"+quick)
	see(t, clients, x, w)
	assert.Equal(t, http.StatusOK, rig.ready(t))

	for range 2 { // the name identifies it: until it can be read, a restart serves what it last read
		rig.stop()
		rig = start(t, dir)
		rig.awaitReady(t)
		clients = subscribeBoth(t, rig, nil)
		see(t, clients, x)
	}
	require.NoError(t, os.Rename(dir+"/two.away", dir+"/two"))
	see(t, clients, w)
}

// TestRemovedSource_KeepsStateOfItsTwin has two sources of the same address, one of which is removed: a restart with all places
// unreachable serves the stored objects of the other one.
func TestRemovedSource_KeepsStateOfItsTwin(t *testing.T) {
	t.Parallel()
	for _, remaining := range []string{"a", "b"} {
		dir := t.TempDir()
		write(t, dir+"/one/f.yaml", entry("shop", "x", 80))
		a, b := "name: a, address: 'fs://./one'"+quick, "name: b, address: 'fs://./one'"+quick
		configured(t, dir, a, b)
		rig := start(t, dir)
		rig.awaitReady(t)
		rig.reload(t, map[string]string{"a": a, "b": b}[remaining])
		eventually(t, func() error { // the state of the removed source is gone
			if states, err := filepath.Glob(dir + "/state/sources/*.db"); err != nil || len(states) != 1 {
				return fmt.Errorf("%v, %w", states, err)
			}
			return nil
		})
		rig.stop()
		require.NoError(t, os.Rename(dir+"/one", dir+"/one.away"))
		rig = start(t, dir)
		rig.awaitReady(t)
		see(t, subscribeBoth(t, rig, nil), x)
		rig.stop()
	}
}

// TestTwoAlikeKeepTheirHolds has two sources of the same address, one of which holds a loss. It still does after a
// restart, whichever state was written last, and also if the other source was added while no process ran.
func TestTwoAlikeKeepTheirHolds(t *testing.T) {
	t.Parallel()
	a, b := "name: a, address: 'fs://./one', guard: off"+quick, "name: b, address: 'fs://./one'"+quick
	for _, began := range [][]string{{a, b}, {b}} {
		for _, last := range []int{0, 1} {
			t.Run(fmt.Sprint(len(began), " sources, written last: ", last), func(t *testing.T) {
				dir := t.TempDir()
				write(t, dir+"/one/well.yaml", entry("shop", "well", 80))
				write(t, dir+"/one/many.yaml", entries("shop", "s", 40))
				configured(t, dir, began...)
				rig := start(t, dir)
				rig.awaitReady(t)
				require.NoError(t, os.Remove(dir+"/one/many.yaml"))
				held := func() {
					t.Helper()
					eventually(t, func() error {
						for _, s := range rig.supervisor.Status() {
							if s.Name == "b" && (s.Held == nil || s.Held.Objects != 40) || s.Name == "a" && s.Held != nil {
								return fmt.Errorf("%s: %v", s.Name, s.Held)
							}
						}
						return nil
					})
				}
				held()
				rig.stop()
				files, err := filepath.Glob(dir + "/state/sources/*.db")
				require.NoError(t, err)
				require.Len(t, files, len(began))
				now := time.Now()
				require.NoError(t, os.Chtimes(files[min(last, len(files)-1)], now, now.Add(time.Hour)))
				configured(t, dir, a, b)
				rig = start(t, dir)
				rig.awaitReady(t)
				held()
				see(t, subscribeBoth(t, rig, nil), append(numbered(40), "ServiceEntry shop/well")...)
				rig.stop()
				require.Contains(t, rig.log.String(), "source b reads the same as source a")
			})
		}
	}
}

// TestExcludedForAnAddedSource lets a source exclude objects that an added one will have, which is slow to be reached.
func TestExcludedForAnAddedSource(t *testing.T) {
	t.Parallel()
	above, dir := t.TempDir(), t.TempDir()
	write(t, above+"/one/f.yaml", entry("shop", "x", 80))
	configured(t, above, "name: up, address: 'fs://./one'"+quick)
	write(t, dir+"/all/f.yaml", entry("shop", "x", 80)+entry("shop", "w", 80))
	configured(t, dir, "name: a, address: 'fs://./all'"+quick)
	r := start(t, dir)
	clients := subscribeBoth(t, r, never(t, x, w))
	see(t, clients, x, w)
	address := down(t)
	r.reload(t, "name: a, address: 'fs://./all', transform: {exclude: [{names: [x]}]}"+quick, "name: up, address: 'xds://"+address+"'")
	assert.Equal(t, http.StatusOK, r.ready(t), "all is served")
	eventually(t, func() error {
		if p := r.reloader.Status().Pending; !strings.Contains(r.log.String(), "to=unreachable") || !slices.Equal(p, []string{"up"}) {
			return errNot
		}
		return nil
	})
	see(t, clients, x, w)
	startAt(t, above, address)
	eventually(t, func() error { // it is that of the added source that is served in the end
		for shadow := range r.view.Snapshot().All() {
			if keyOf(shadow) == x && shadow.Origin().Source != "up" {
				return errNot
			}
		}
		return nil
	})
	eventually(t, func() error {
		if p := r.reloader.Status().Pending; len(p) > 0 {
			return fmt.Errorf("pending: %v", p)
		}
		return nil
	})
	see(t, clients, x, w)
}

// TestRestart_BeforeAddedSourceWasRead adds an unreachable source and restarts: the new process has no state of it.
func TestRestart_BeforeAddedSourceWasRead(t *testing.T) {
	t.Parallel()
	above, dir := t.TempDir(), t.TempDir()
	write(t, above+"/one/f.yaml", entry("shop", "w", 80))
	configured(t, above, "name: up, address: 'fs://./one'"+quick)
	write(t, dir+"/all/f.yaml", entry("shop", "x", 80))
	configured(t, dir, "name: a, address: 'fs://./all'"+quick)
	rig := start(t, dir)
	rig.awaitReady(t)
	address := down(t)
	rig.reload(t, "name: a, address: 'fs://./all'"+quick, "name: up, address: 'xds://"+address+"'")
	require.Equal(t, http.StatusOK, rig.ready(t))
	rig.stop()

	rig = start(t, dir)
	clients := subscribeBoth(t, rig, nil)
	eventually(t, func() error {
		for _, s := range rig.supervisor.Status() {
			if s.Synced != (s.Name == "a") || s.Name == "up" && s.State != sources.Unreachable {
				return errNot
			}
		}
		return nil
	})
	require.Equal(t, http.StatusServiceUnavailable, rig.ready(t))
	for _, c := range clients {
		require.Empty(t, c.now(), "nothing, of any source")
	}
	startAt(t, above, address)
	see(t, clients, x, w)
	require.Equal(t, http.StatusOK, rig.ready(t))
}

// TestReload_SourceThatCannotBeCreated has a valid configuration with a source that cannot be created: the reload changes
// nothing.
func TestReload_SourceThatCannotBeCreated(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir+"/one/f.yaml", entry("shop", "x", 80))
	write(t, dir+"/two/f.yaml", entry("shop", "w", 80))
	configured(t, dir, "name: a, address: 'fs://./one'"+quick)
	rig := start(t, dir)
	clients := subscribeBoth(t, rig, never(t, x))
	see(t, clients, x)
	before := rig.sources.active
	configured(t, dir, "name: b, address: 'fs://./two'"+quick)
	next, err := config.Load(dir + "/tributary.yaml")
	require.NoError(t, err)
	odd := next.ConfigSources[0]
	odd.Name, odd.Address = "odd", "fs://odd"
	_, err = rig.sources.configure([]config.Source{next.ConfigSources[0], odd})
	require.ErrorContains(t, err, `source odd: address: "fs://odd"`)
	require.Equal(t, before, rig.sources.active)
	require.Len(t, rig.supervisor.Status(), 1)
	require.Equal(t, "a", rig.supervisor.Status()[0].Name)
	rig.reload(t, "name: a, address: 'fs://./one'"+quick, "name: b, address: 'fs://./two'"+quick)
	see(t, clients, x, w)
}

// TestTransformRemoved removes a transform from a source that requests only differences.
func TestTransformRemoved(t *testing.T) {
	t.Parallel()
	above, dir := t.TempDir(), t.TempDir()
	write(t, above+"/one/f.yaml", entry("shop", "x", 80))
	configured(t, above, "name: up, address: 'fs://./one'"+quick)
	up := start(t, above)
	address := "name: up, address: 'xds://" + up.XDS().String() + "'"
	configured(t, dir, address+", transform: {namespaces: {shop: other}}")
	rig := start(t, dir)
	clients := subscribeBoth(t, rig, nil)
	see(t, clients, "ServiceEntry other/x")
	rig.reload(t, address)
	see(t, clients, x)

	rig.stop()
	configured(t, dir, address+", transform: {namespaces: {shop: third}}")
	rig = start(t, dir)
	see(t, subscribeBoth(t, rig, nil), "ServiceEntry third/x")
}

// TestReload_ForgetsOldState adds a source with saved objects of an earlier configuration: they are outdated, and not
// served.
func TestReload_ForgetsOldState(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir+"/one/f.yaml", entries("shop", "s", 20))
	write(t, dir+"/two/f.yaml", entry("shop", "old", 80))
	two := "name: b, address: 'fs://./two'" + quick
	configured(t, dir, "name: a, address: 'fs://./one'"+quick, two)
	rig := start(t, dir)
	see(t, subscribeBoth(t, rig, nil), append(numbered(20), "ServiceEntry shop/old")...)
	rig.stop()
	configured(t, dir, "name: a, address: 'fs://./one'"+quick)
	rig = start(t, dir)
	clients := subscribeBoth(t, rig, never(t, numbered(20)...))
	see(t, clients, numbered(20)...)

	// The objects of one move to two, which cannot be read yet.
	require.NoError(t, os.RemoveAll(dir+"/two"))
	rig.reload(t, two)
	assert.Equal(t, http.StatusOK, rig.ready(t))
	see(t, clients, numbered(20)...)
	files, err := filepath.Glob(dir + "/state/sources/*.db")
	require.NoError(t, err)
	require.Empty(t, files, "a restart before two is read serves nothing of another time")
	write(t, dir+"/two.new/f.yaml", entries("shop", "s", 20)+entry("shop", "z", 80))
	require.NoError(t, os.Rename(dir+"/two.new", dir+"/two"))
	see(t, clients, append(numbered(20), z)...)
}

func numbered(n int) (names []string) {
	for i := range n {
		names = append(names, "ServiceEntry shop/s"+string(rune('0'+i/10))+string(rune('0'+i%10)))
	}
	return names
}

// TestReload_StateThatCannotBeRemoved has a reload that cannot remove the state of a source: it succeeds as a whole.
func TestReload_StateThatCannotBeRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir+"/one/f.yaml", entry("shop", "x", 80))
	write(t, dir+"/two/f.yaml", entry("shop", "w", 80))
	write(t, dir+"/three/f.yaml", entry("shop", "z", 80))
	first, two, three := "name: a, address: 'fs://./one'"+quick,
		"name: b, address: 'fs://./two'"+quick, "name: c, address: 'fs://./three'"+quick
	configured(t, dir, first, two, three)
	rig := start(t, dir)
	clients := subscribeBoth(t, rig, never(t, x))
	see(t, clients, x, w, z)
	states := func() []string {
		files, err := filepath.Glob(dir + "/state/sources/*.db")
		require.NoError(t, err)
		return files
	}
	eventually(t, func() error {
		if len(states()) != 3 {
			return errNot
		}
		return nil
	})
	for _, file := range states() { // directories, in the place of the files, that cannot be removed
		eventually(t, func() error { return errors.Join(os.RemoveAll(file), os.MkdirAll(file+"/in/the/way", 0o700)) })
	}
	rig.reload(t, first)
	see(t, clients, x)
	warnings := func() int {
		return strings.Count(rig.log.String(), `level=WARN msg="the files of a retired source cannot be removed"`)
	}
	eventually(t, func() error {
		if warnings() == 0 {
			return errNot
		}
		return nil
	})
	rig.reload(t, first, two, three)
	see(t, clients, x, w, z)

	rig.reload(t, first)
	see(t, clients, x)
	for _, file := range states() { // now they can be
		require.NoError(t, os.RemoveAll(file+"/in"))
	}
	rig.reload(t, first)
	eventually(t, func() error {
		if len(states()) > 1 {
			return errNot
		}
		return nil
	})
}

// TestReload_Address: a source whose address changes goes on, over restarts too: with a hold, and with all that it
// lacks, until the new address can be read.
func TestReload_Address(t *testing.T) {
	t.Parallel()
	above, dir := t.TempDir(), t.TempDir()
	write(t, above+"/one/f.yaml", entry("shop", "x", 80))
	configured(t, above, "name: up, address: 'fs://./one'"+quick)
	address := down(t)
	write(t, dir+"/one/f.yaml", entries("shop", "s", 40))
	write(t, dir+"/one/g.yaml", entry("shop", "z", 80))
	configured(t, dir, "name: a, address: 'fs://./one'"+quick)
	rig := start(t, dir)
	objects := append(numbered(40), z)
	clients := subscribeBoth(t, rig, never(t, objects...))
	see(t, clients, objects...)
	require.NoError(t, os.Remove(dir+"/one/f.yaml"))
	why := rig.awaitHeld(t, 40)
	require.NoError(t, os.CopyFS(dir+"/two", os.DirFS(dir+"/one")))
	for _, next := range []string{
		"name: a, address: 'fs://./one', quietDelay: 2ms, rescanInterval: 100ms, guard: {min: 11}, precedence: 3",
		"name: a, address: 'fs://./two'" + quick,
		"name: a, address: 'xds://" + address + "'",
	} {
		rig.reload(t, next)
		require.Equal(t, why, rig.awaitHeld(t, 40), next)
		see(t, clients, objects...)
	}
	rig.stop()
	rig = start(t, dir)
	require.Equal(t, why, rig.awaitHeld(t, 40))
	clients = subscribeBoth(t, rig, nil)
	see(t, clients, objects...)
	startAt(t, above, address)
	see(t, clients, append(numbered(40), x)...)
	rig.awaitHeld(t, 40)
}

// TestReload_Name: a source under another name is another source. Until it was read, all is served; then what it has,
// and nothing held.
func TestReload_Name(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir+"/one/f.yaml", entries("shop", "s", 40))
	write(t, dir+"/one/g.yaml", entry("shop", "z", 80))
	configured(t, dir, "name: a, address: 'fs://./one'"+quick)
	rig := start(t, dir)
	objects := append(numbered(40), z)
	clients := subscribeBoth(t, rig, never(t, z))
	see(t, clients, objects...)
	require.NoError(t, os.Remove(dir+"/one/f.yaml"))
	rig.awaitHeld(t, 40)
	require.NoError(t, os.Rename(dir+"/one", dir+"/away"))
	rig.reload(t, "name: b, address: 'fs://./one'"+quick)
	see(t, clients, objects...)
	assert.Equal(t, http.StatusOK, rig.ready(t))
	require.NoError(t, os.Rename(dir+"/away", dir+"/one"))
	see(t, clients, z)
	require.Nil(t, rig.supervisor.Status()[0].Held)
	require.Contains(t, rig.log.String(), "the source is removed, and its held loss is released")
}

// TestReload_LogsRemovedObjects: the objects of a removed source and of an address that has become empty are not held,
// since the user edited the configuration. Both are logged in the same way.
func TestReload_LogsRemovedObjects(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]string{
		"removed":               "",
		"mistyped, and empty":   "name: b, address: 'fs://./c'",
		"under another name":    "name: d, address: 'fs://./b'",
		"another, with a share": "name: b, address: 'fs://./e'",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir+"/a/x.yaml", entry("shop", "kept", 80))
			write(t, dir+"/b/x.yaml", entries("shop", "gone", 3))
			write(t, dir+"/e/x.yaml", entries("shop", "gone", 1))
			require.NoError(t, os.Mkdir(dir+"/c", 0o700))
			configured(t, dir, "name: a, address: 'fs://./a'", "name: b, address: 'fs://./b'")
			rig := start(t, dir)
			rig.awaitReady(t)
			all := []string{"name: a, address: 'fs://./a'"}
			if next != "" {
				all = append(all, next)
			}
			rig.reload(t, all...)
			const line = `msg="the reload removed objects that no source of the new configuration has" objects=%d kinds=map[ServiceEntry:%[1]d] ` +
				`of_sources=%s names="ServiceEntry shop/gone`
			source, n := "b", map[string]int{"removed": 3, "mistyped, and empty": 3, "another, with a share": 2}[name]
			eventually(t, func() error {
				if rig.view.Snapshot().Len() != 4-n || len(rig.reloader.Status().Pending) > 0 {
					return errNot
				}
				for res := range rig.view.Snapshot().All() {
					if n == 0 && res.Origin().Source == source {
						return errNot
					}
				}
				return nil
			})
			if n == 0 {
				require.NotContains(t, rig.log.String(), "the reload removed objects")
				rig.reload(t, "name: a, address: 'fs://./a'") // so that there is something to tell
				source, n = "d", 3
			}
			eventually(t, func() error {
				if !strings.Contains(rig.log.String(), fmt.Sprintf(line, n, source)) {
					return errNot
				}
				return nil
			})
			require.Equal(t, 1, strings.Count(rig.log.String(), fmt.Sprintf(line, n, source)))
		})
	}
}
