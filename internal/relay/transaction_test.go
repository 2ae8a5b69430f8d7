package relay

import (
	"errors"
	"fmt"
	"net/http"
	"os"
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

// subscribeBoth starts a client of each variant of the protocol.
func subscribeBoth(t *testing.T, r *rig, check func(reader string, now contents)) []*client {
	t.Helper()
	return []*client{startClient(t, r.XDS().String(), adsc.SotW, check), startClient(t, r.XDS().String(), adsc.Delta, check)}
}

func awaitObjects(t *testing.T, clients []*client, names ...string) {
	t.Helper()
	for _, c := range clients {
		c.awaitObjects(t, names...)
	}
}

const x, w, z = "ServiceEntry shop/x", "ServiceEntry shop/w", "ServiceEntry shop/z"

// oneAndTwo are the files of two places.
var oneAndTwo = []string{"one/f.yaml: shop/x", "two/f.yaml: shop/w"}

// TestReload_SourcesSwapAddresses lets two sources swap directories, readable and unreadable ones.
func TestReload_SourcesSwapAddresses(t *testing.T) {
	t.Parallel()
	for _, unreadable := range []bool{false, true} {
		rig := serve(t, oneAndTwo, "name: a, address: 'fs://./one'", "name: b, address: 'fs://./two'")
		dir := rig.dir
		clients := subscribeBoth(t, rig, neverMissing(t, x, w))
		awaitObjects(t, clients, x, w)
		if unreadable {
			require.NoError(t, os.Rename(dir+"/one", dir+"/one.away"))
			require.NoError(t, os.Rename(dir+"/two", dir+"/two.away"))
		}
		for range 5 {
			rig.reload(t, "name: b, address: 'fs://./one'", "name: a, address: 'fs://./two'")
			rig.reload(t, "name: a, address: 'fs://./one'", "name: b, address: 'fs://./two'")
		}
		assert.Equal(t, http.StatusOK, rig.ready(t))
		awaitObjects(t, clients, x, w)
	}
}

// TestReload_SourceTakesOverAddress lets a source take over the address of another one, which is unreadable.
func TestReload_SourceTakesOverAddress(t *testing.T) {
	t.Parallel()
	rig := serve(t, oneAndTwo, "name: a, address: 'fs://./one'", "name: b, address: 'fs://./two'")
	dir := rig.dir
	clients := subscribeBoth(t, rig, neverMissing(t, w))
	awaitObjects(t, clients, x, w)
	require.NoError(t, os.Rename(dir+"/two", dir+"/two.away"))
	rig.reload(t, "name: a, address: 'fs://./two'")
	awaitObjects(t, clients, x, w)
	assert.Equal(t, http.StatusOK, rig.ready(t))

	for range 2 { // the name identifies it: until it can be read, a restart serves what it last read
		rig.stop()
		rig = startReady(t, dir)
		clients = subscribeBoth(t, rig, nil)
		awaitObjects(t, clients, x)
	}
	require.NoError(t, os.Rename(dir+"/two.away", dir+"/two"))
	awaitObjects(t, clients, w)
}

// TestRemovedSource_KeepsStateOfSourceWithSameAddress has two sources of the same address, one of which is removed: a
// restart with all places unreachable serves the stored objects of the other one.
func TestRemovedSource_KeepsStateOfSourceWithSameAddress(t *testing.T) {
	t.Parallel()
	for _, remaining := range []string{"a", "b"} {
		dir := t.TempDir()
		fill(t, dir, "one/f.yaml: shop/x")
		a, b := "name: a, address: 'fs://./one'", "name: b, address: 'fs://./one'"
		configured(t, dir, a, b)
		rig := startReady(t, dir)
		rig.reload(t, map[string]string{"a": a, "b": b}[remaining])
		await(t, func() bool { return len(glob(t, dir+"/state/sources/*.db")) == 1 }) // that of the other source is gone
		rig.stop()
		require.NoError(t, os.Rename(dir+"/one", dir+"/one.away"))
		rig = startReady(t, dir)
		awaitObjects(t, subscribeBoth(t, rig, nil), x)
		rig.stop()
	}
}

// TestRestart_SourcesWithSameAddressKeepHolds has two sources of the same address, one of which holds a loss. It still does after a
// restart, whichever state was written last, and also if the other source was added while no process ran.
func TestRestart_SourcesWithSameAddressKeepHolds(t *testing.T) {
	t.Parallel()
	a, b := "name: a, address: 'fs://./one', guard: off", "name: b, address: 'fs://./one'"
	for _, began := range [][]string{{a, b}, {b}} {
		for _, last := range []int{0, 1} {
			t.Run(fmt.Sprint(len(began), " sources, written last: ", last), func(t *testing.T) {
				rig := serve(t, []string{"one/well.yaml: shop/well", "one/many.yaml: shop/s*40"}, began...)
				dir := rig.dir
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
				files := glob(t, dir+"/state/sources/*.db")
				require.Len(t, files, len(began))
				now := time.Now()
				require.NoError(t, os.Chtimes(files[min(last, len(files)-1)], now, now.Add(time.Hour)))
				configured(t, dir, a, b)
				rig = startReady(t, dir)
				held()
				awaitObjects(t, subscribeBoth(t, rig, nil), append(numbered(40), "ServiceEntry shop/well")...)
				rig.stop()
				require.Contains(t, rig.log.String(), "source b reads the same as source a")
			})
		}
	}
}

// TestReload_ServesExcludedObjectsUntilAddedSourceIsRead lets a source exclude objects that an added one will have,
// which is slow to be reached.
func TestReload_ServesExcludedObjectsUntilAddedSourceIsRead(t *testing.T) {
	t.Parallel()
	above, dir := t.TempDir(), t.TempDir()
	fill(t, above, "one/f.yaml: shop/x")
	configured(t, above, "name: up, address: 'fs://./one'")
	fill(t, dir, "all/f.yaml: shop/x shop/w")
	configured(t, dir, "name: a, address: 'fs://./all'")
	r := start(t, dir)
	clients := subscribeBoth(t, r, neverMissing(t, x, w))
	awaitObjects(t, clients, x, w)
	address := down(t)
	r.reload(t, "name: a, address: 'fs://./all', transform: {exclude: [{names: [x]}]}",
		"name: up, address: 'xds://"+address+"'")
	assert.Equal(t, http.StatusOK, r.ready(t), "all is served")
	await(t, func() bool {
		p := r.reloader.Status().Pending
		return strings.Contains(r.log.String(), "to=unreachable") && slices.Equal(p, []string{"up"})
	})
	awaitObjects(t, clients, x, w)
	startAt(t, above, address)
	await(t, func() bool { // it is that of the added source that is served in the end
		for object := range r.view.Snapshot().All() {
			if keyOf(object) == x && object.Origin().Source != "up" {
				return false
			}
		}
		return len(r.reloader.Status().Pending) == 0
	})
	awaitObjects(t, clients, x, w)
}

// TestRestart_BeforeAddedSourceWasRead adds an unreachable source and restarts: the new process has no state of it.
func TestRestart_BeforeAddedSourceWasRead(t *testing.T) {
	t.Parallel()
	above, dir := t.TempDir(), t.TempDir()
	fill(t, above, "one/f.yaml: shop/w")
	configured(t, above, "name: up, address: 'fs://./one'")
	fill(t, dir, "all/f.yaml: shop/x")
	configured(t, dir, "name: a, address: 'fs://./all'")
	rig := startReady(t, dir)
	address := down(t)
	rig.reload(t, "name: a, address: 'fs://./all'", "name: up, address: 'xds://"+address+"'")
	require.Equal(t, http.StatusOK, rig.ready(t))
	rig.stop()

	rig = start(t, dir)
	clients := subscribeBoth(t, rig, nil)
	await(t, func() bool {
		return !slices.ContainsFunc(rig.supervisor.Status(), func(s sources.Status) bool {
			return s.Synced != (s.Name == "a") || s.Name == "up" && s.State != sources.Unreachable
		})
	})
	require.Equal(t, http.StatusServiceUnavailable, rig.ready(t))
	for _, c := range clients {
		require.Empty(t, c.now(), "nothing, of any source")
	}
	startAt(t, above, address)
	awaitObjects(t, clients, x, w)
	require.Equal(t, http.StatusOK, rig.ready(t))
}

// TestReload_SourceThatCannotBeCreated has a valid configuration with a source that cannot be created: the reload changes
// nothing.
func TestReload_SourceThatCannotBeCreated(t *testing.T) {
	t.Parallel()
	rig := serve(t, []string{"one/f.yaml: shop/x", "two/f.yaml: shop/w"}, "name: a, address: 'fs://./one'")
	dir := rig.dir
	clients := subscribeBoth(t, rig, neverMissing(t, x))
	awaitObjects(t, clients, x)
	before := rig.sources.active
	configured(t, dir, "name: b, address: 'fs://./two'")
	next, err := config.Load(dir + "/tributary.yaml")
	require.NoError(t, err)
	odd := next.ConfigSources[0]
	odd.Name, odd.Address = "odd", "fs://odd"
	_, err = rig.sources.configure([]config.Source{next.ConfigSources[0], odd})
	require.ErrorContains(t, err, `source odd: address: "fs://odd"`)
	require.Equal(t, before, rig.sources.active)
	require.Len(t, rig.supervisor.Status(), 1)
	require.Equal(t, "a", rig.supervisor.Status()[0].Name)
	rig.reload(t, "name: a, address: 'fs://./one'", "name: b, address: 'fs://./two'")
	awaitObjects(t, clients, x, w)
}

// TestReload_RemovesTransform removes a transform from a source that requests only differences.
func TestReload_RemovesTransform(t *testing.T) {
	t.Parallel()
	above, dir := t.TempDir(), t.TempDir()
	fill(t, above, "one/f.yaml: shop/x")
	configured(t, above, "name: up, address: 'fs://./one'")
	up := start(t, above)
	address := "name: up, address: 'xds://" + up.XDS().String() + "'"
	configured(t, dir, address+", transform: {namespaces: {shop: other}}")
	rig := start(t, dir)
	clients := subscribeBoth(t, rig, nil)
	awaitObjects(t, clients, "ServiceEntry other/x")
	rig.reload(t, address)
	awaitObjects(t, clients, x)

	rig.stop()
	configured(t, dir, address+", transform: {namespaces: {shop: third}}")
	rig = start(t, dir)
	awaitObjects(t, subscribeBoth(t, rig, nil), "ServiceEntry third/x")
}

// TestReload_ForgetsOldState adds a source with saved objects of an earlier configuration: they are outdated, and not
// served.
func TestReload_ForgetsOldState(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fill(t, dir, "one/f.yaml: shop/s*20", "two/f.yaml: shop/old")
	two := "name: b, address: 'fs://./two'"
	configured(t, dir, "name: a, address: 'fs://./one'", two)
	rig := start(t, dir)
	awaitObjects(t, subscribeBoth(t, rig, nil), append(numbered(20), "ServiceEntry shop/old")...)
	rig.stop()
	configured(t, dir, "name: a, address: 'fs://./one'")
	rig = start(t, dir)
	clients := subscribeBoth(t, rig, neverMissing(t, numbered(20)...))
	awaitObjects(t, clients, numbered(20)...)

	// The objects of one move to two, which cannot be read yet.
	require.NoError(t, os.RemoveAll(dir+"/two"))
	rig.reload(t, two)
	assert.Equal(t, http.StatusOK, rig.ready(t))
	awaitObjects(t, clients, numbered(20)...)
	require.Empty(t, glob(t, dir+"/state/sources/*.db"), "a restart before two is read serves nothing of another time")
	fill(t, dir, "two.new/f.yaml: shop/s*20 shop/z")
	require.NoError(t, os.Rename(dir+"/two.new", dir+"/two"))
	awaitObjects(t, clients, append(numbered(20), z)...)
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
	fill(t, dir, "one/f.yaml: shop/x", "two/f.yaml: shop/w", "three/f.yaml: shop/z")
	first, two, three := "name: a, address: 'fs://./one'",
		"name: b, address: 'fs://./two'", "name: c, address: 'fs://./three'"
	configured(t, dir, first, two, three)
	rig := start(t, dir)
	clients := subscribeBoth(t, rig, neverMissing(t, x))
	awaitObjects(t, clients, x, w, z)
	states := func() []string { return glob(t, dir+"/state/sources/*.db") }
	await(t, func() bool { return len(states()) == 3 })
	for _, file := range states() { // directories, in the place of the files, that cannot be removed
		eventually(t, func() error { return errors.Join(os.RemoveAll(file), os.MkdirAll(file+"/in/the/way", 0o700)) })
	}
	rig.reload(t, first)
	awaitObjects(t, clients, x)
	warnings := func() int {
		return strings.Count(rig.log.String(), `level=WARN msg="the files of a retired source cannot be removed"`)
	}
	await(t, func() bool { return warnings() != 0 })
	rig.reload(t, first, two, three)
	awaitObjects(t, clients, x, w, z)

	rig.reload(t, first)
	awaitObjects(t, clients, x)
	for _, file := range states() { // now they can be
		require.NoError(t, os.RemoveAll(file+"/in"))
	}
	rig.reload(t, first)
	await(t, func() bool { return len(states()) <= 1 })
}

// TestReload_Address: a source whose address changes goes on, over restarts too: with a hold, and with all that it
// lacks, until the new address can be read.
func TestReload_Address(t *testing.T) {
	t.Parallel()
	above, dir := t.TempDir(), t.TempDir()
	fill(t, above, "one/f.yaml: shop/x")
	configured(t, above, "name: up, address: 'fs://./one'")
	address := down(t)
	fill(t, dir, "one/f.yaml: shop/s*40", "one/g.yaml: shop/z")
	configured(t, dir, "name: a, address: 'fs://./one'")
	rig := start(t, dir)
	objects := append(numbered(40), z)
	clients := subscribeBoth(t, rig, neverMissing(t, objects...))
	awaitObjects(t, clients, objects...)
	require.NoError(t, os.Remove(dir+"/one/f.yaml"))
	why := rig.awaitHeld(t, 40)
	require.NoError(t, os.CopyFS(dir+"/two", os.DirFS(dir+"/one")))
	for _, next := range []string{
		"name: a, address: 'fs://./one', quietDelay: 2ms, rescanInterval: 100ms, guard: {min: 11}, precedence: 3",
		"name: a, address: 'fs://./two'",
		"name: a, address: 'xds://" + address + "'",
	} {
		rig.reload(t, next)
		require.Equal(t, why, rig.awaitHeld(t, 40), next)
		awaitObjects(t, clients, objects...)
	}
	rig.stop()
	rig = start(t, dir)
	require.Equal(t, why, rig.awaitHeld(t, 40))
	clients = subscribeBoth(t, rig, nil)
	awaitObjects(t, clients, objects...)
	startAt(t, above, address)
	awaitObjects(t, clients, append(numbered(40), x)...)
	rig.awaitHeld(t, 40)
}

// TestReload_Name: a source under another name is another source. Until it was read, all is served; then what it has,
// and nothing held.
func TestReload_Name(t *testing.T) {
	t.Parallel()
	rig := serve(t, []string{"one/f.yaml: shop/s*40", "one/g.yaml: shop/z"}, "name: a, address: 'fs://./one'")
	dir := rig.dir
	objects := append(numbered(40), z)
	clients := subscribeBoth(t, rig, neverMissing(t, z))
	awaitObjects(t, clients, objects...)
	require.NoError(t, os.Remove(dir+"/one/f.yaml"))
	rig.awaitHeld(t, 40)
	require.NoError(t, os.Rename(dir+"/one", dir+"/away"))
	rig.reload(t, "name: b, address: 'fs://./one'")
	awaitObjects(t, clients, objects...)
	assert.Equal(t, http.StatusOK, rig.ready(t))
	require.NoError(t, os.Rename(dir+"/away", dir+"/one"))
	awaitObjects(t, clients, z)
	require.Nil(t, rig.supervisor.Status()[0].Held)
	require.Contains(t, rig.log.String(), "the source is removed, and its held loss is released")
}

// TestReload_LogsRemovedObjects: the objects of a removed source and of an address that has become empty are not held,
// since the user edited the configuration. Both are logged in the same way.
func TestReload_LogsRemovedObjects(t *testing.T) {
	t.Parallel()
	const line = `msg="the reload removed objects that no source of the new configuration has" objects=%d ` +
		`kinds=map[ServiceEntry:%[1]d] of_sources=%s names="ServiceEntry shop/gone`
	kept := "name: a, address: 'fs://./a'"
	for name, c := range map[string]struct {
		next    []string
		removed int
	}{
		"removed":               {[]string{kept}, 3},
		"mistyped, and empty":   {[]string{kept, "name: b, address: 'fs://./c'"}, 3},
		"under another name":    {[]string{kept, "name: d, address: 'fs://./b'"}, 0},
		"another, with a share": {[]string{kept, "name: b, address: 'fs://./e'"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			files := []string{"a/x.yaml: shop/kept", "b/x.yaml: shop/gone*3", "e/x.yaml: shop/gone*1"}
			rig := serve(t, files, kept, "name: b, address: 'fs://./b'")
			require.NoError(t, os.Mkdir(rig.dir+"/c", 0o700))
			rig.awaitReady(t)
			rig.reload(t, c.next...)
			await(t, func() bool {
				return rig.view.Snapshot().Len() == 4-c.removed && len(rig.reloader.Status().Pending) == 0
			})
			source, removed := "b", c.removed
			if removed == 0 {
				await(t, func() bool {
					for object := range rig.view.Snapshot().All() {
						if object.Origin().Source == "b" {
							return false
						}
					}
					return true
				})
				require.NotContains(t, rig.log.String(), "the reload removed objects")
				rig.reload(t, kept) // so that there is something to tell
				source, removed = "d", 3
			}
			want := fmt.Sprintf(line, removed, source)
			await(t, func() bool { return strings.Contains(rig.log.String(), want) })
			require.Equal(t, 1, strings.Count(rig.log.String(), want))
		})
	}
}

// TestReload_LogsRemovalsOfPendingReloads: a removal is logged although another source was not read since the start.
func TestReload_LogsRemovalsOfPendingReloads(t *testing.T) {
	t.Parallel()
	second := "name: b, address: 'fs://./b'"
	rig := serve(t, []string{"a/x.yaml: shop/gone*3"}, "name: a, address: 'fs://./a'", second)
	await(t, func() bool { return rig.view.Snapshot().Len() == 3 })
	rig.reload(t, second)
	fill(t, rig.dir, "b/x.yaml: shop/kept")
	await(t, func() bool {
		return strings.Contains(rig.log.String(), "objects=3 kinds=map[ServiceEntry:3] of_sources=a ")
	})
}

// TestReload_IsNotBlamedForDeletions: a file of an unchanged source is deleted before an added source is read.
func TestReload_IsNotBlamedForDeletions(t *testing.T) {
	t.Parallel()
	unchanged := "name: a, address: 'fs://./a'"
	rig := serve(t, []string{"a/x.yaml: shop/kept", "a/y.yaml: shop/deleted"}, unchanged)
	rig.awaitReady(t)
	rig.reload(t, unchanged, "name: b, address: 'fs://./b'")
	require.NoError(t, os.Remove(rig.dir+"/a/y.yaml"))
	await(t, func() bool { return rig.view.Snapshot().Len() == 1 })
	fill(t, rig.dir, "b/x.yaml: shop/gone")
	await(t, func() bool { return rig.view.Snapshot().Len() == 2 && len(rig.reloader.Status().Pending) == 0 })
	rig.reload(t, unchanged) // so that a removal follows
	await(t, func() bool { return strings.Contains(rig.log.String(), "of_sources=b ") })
	require.Equal(t, 1, strings.Count(rig.log.String(), "the reload removed objects"))
}
