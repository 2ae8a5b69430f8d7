package relay

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/sources"
)

// serveUnreadable makes a place that serves nearly all objects although it cannot be read: an invalid object, an object in an
// unreadable file, and 40 held objects. It returns their names.
func serveUnreadable(t *testing.T, dir string) (*rig, []string) {
	t.Helper()
	fill(t, dir, "one/many.yaml: shop/s*40")
	fill(t, dir, "one/well.yaml: shop/well", "one/broken.yaml: shop/broken")
	fill(t, dir, "one/gone.txt: shop/gone")
	require.NoError(t, os.Symlink("gone.txt", dir+"/one/gone.yaml"))
	configured(t, dir, "name: a, address: 'fs://./one'")
	r := startReady(t, dir)
	write(t, dir+"/one/broken.yaml", strings.Replace(entry("shop", "broken", 80), "hosts", "host", 1))
	require.NoError(t, os.Remove(dir+"/one/gone.txt"))
	await(t, func() bool {
		st := r.supervisor.Status()[0]
		return len(st.Quarantined) == 1 && st.State == sources.Degraded
	})
	require.NoError(t, os.Remove(dir+"/one/many.yaml"))
	r.awaitHeld(t, 40)
	return r, append(numbered(40), "ServiceEntry shop/well", "ServiceEntry shop/broken", "ServiceEntry shop/gone")
}

// awaitHeld waits until so many objects of the only source are held.
func (r *rig) awaitHeld(t *testing.T, objects int) (why string) {
	t.Helper()
	await(t, func() bool {
		held := r.supervisor.Status()[0].Held
		if held != nil {
			why = held.Why
		}
		return held != nil && held.Objects == objects
	})
	return why
}

// TestReload_UnrelatedSettingsKeepTable: an explicit default, a setting of messages, and another form of a path make neither
// another source nor another reading.
func TestReload_UnrelatedSettingsKeepTable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rig, names := serveUnreadable(t, dir)
	clients := subscribeBoth(t, rig, neverMissing(t, names...))
	awaitObjects(t, clients, names...)
	table := rig.sources.active[0].table
	for _, settings := range []string{
		", defaultNamespace: default", ", unknownFields: error", ", validation: enforce", ", transform: {}", ", foreignKinds: warn",
		", foreignKinds: error",
	} {
		rig.reload(t, "name: a, address: 'fs://./one'"+settings)
		require.Same(t, table, rig.sources.active[0].table, settings)
	}
	rig.reload(t, "name: a, address: 'fs://"+dir+"/two/../one/'")
	require.Same(t, table, rig.sources.active[0].table)
	rig.awaitHeld(t, 40)
	awaitObjects(t, clients, names...)
}

// TestReload_ChangedReadingKeepsUnreadableObjects: a setting that changes the objects of a source makes it read them
// again. Unreadable, invalid and held objects stay as they were, also after a restart, and also if the restart comes
// before the first read.
func TestReload_ChangedReadingKeepsUnreadableObjects(t *testing.T) {
	t.Parallel()
	for _, settings := range []string{
		", transform: {labels: {add: {team: x}}}", ", validation: warn", ", unknownFields: warn, defaultNamespace: mesh",
		", domainSuffix: cluster.local",
	} {
		t.Run(settings, func(t *testing.T) {
			dir := t.TempDir()
			rig, names := serveUnreadable(t, dir)
			clients := subscribeBoth(t, rig, neverMissing(t, names...))
			awaitObjects(t, clients, names...)
			why := rig.awaitHeld(t, 40)
			rig.reload(t, "name: a, address: 'fs://./one'"+settings)
			assert.Equal(t, why, rig.awaitHeld(t, 40))
			awaitObjects(t, clients, names...)
			eventually(t, func() error { // what can be read is labelled
				labelled := 0
				for res := range rig.view.Snapshot().All() {
					if res.Meta().Labels["team"] == "x" {
						labelled++
					}
				}
				if len(rig.reloader.Status().Pending) > 0 || strings.Contains(settings, "team") != (labelled == 1) {
					return fmt.Errorf("labelled: %d", labelled)
				}
				return nil
			})
			awaitObjects(t, clients, names...)
			for range 2 {
				rig.stop()
				rig = start(t, dir)
				awaitObjects(t, subscribeBoth(t, rig, nil), names...)
				rig.awaitHeld(t, 40)
			}
			fill(t, dir, "one/many.yaml: shop/s*40", "one/broken.yaml: shop/broken", "one/gone.txt: shop/gone")
			await(t, func() bool {
				st := rig.supervisor.Status()[0]
				return len(st.Quarantined) <= 0 && st.Held == nil
			})
			require.NoError(t, os.Remove(dir+"/one/broken.yaml"))
			awaitObjects(t, subscribeBoth(t, rig, nil), append(numbered(40), "ServiceEntry shop/well", "ServiceEntry shop/gone")...)
		})
	}
}

// TestChangedSettings_ApplyAfterReloadAndRestart: after a change of such settings, by a reload or by a restart, the
// objects are those of the source with the new settings.
func TestChangedSettings_ApplyAfterReloadAndRestart(t *testing.T) {
	t.Parallel()
	short := "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: x, namespace: shop}\n" +
		"spec: {hosts: [details], http: [{route: [{destination: {host: details}}]}]}\n"
	for settings, c := range map[string]struct{ text, before, after string }{
		"transform: {namespaces: {shop: other}}": {entry("shop", "x", 80), x, "ServiceEntry other/x"},
		"transform: {exclude: [{names: [x]}]}":   {entry("shop", "x", 80), x, ""},
		"validation: warn":                       {entry("shop", "x", 80000), "", x},
		"defaultNamespace: mesh": {
			strings.Replace(entry("shop", "x", 80), ", namespace: shop", "", 1), "ServiceEntry default/x",
			"ServiceEntry mesh/x",
		},
		"unknownFields: warn":         {strings.Replace(entry("shop", "x", 80), "resolution", "fromTheFuture: 1, resolution", 1), "", x},
		"domainSuffix: cluster.local": {short, "VirtualService shop/x details", "VirtualService shop/x details.shop.svc.cluster.local"},
	} {
		for _, how := range []string{"reload", "restart"} {
			t.Run(settings+", by a "+how, func(t *testing.T) {
				dir := t.TempDir()
				write(t, dir+"/one/f.yaml", c.text)
				partial := ", partialStart: true" // of an invalid object before another object exists
				configured(t, dir, "name: a, address: 'fs://./one'"+partial)
				rig := start(t, dir)
				serves := func(want string) {
					t.Helper()
					eventually(t, func() error {
						if got := described(t, rig); got != want || !rig.view.Synced() || !rig.supervisor.Status()[0].Synced {
							return fmt.Errorf("got %q, want %q", got, want)
						}
						return nil
					})
				}
				serves(c.before)
				if how == "reload" {
					rig.reload(t, "name: a, address: 'fs://./one', "+settings+partial)
				} else {
					rig.stop()
					configured(t, dir, "name: a, address: 'fs://./one', "+settings+partial)
					rig = start(t, dir)
				}
				serves(c.after)
			})
		}
	}
}

// TestChangedSettings_HoldNoLoss: objects that a source lacks because of other settings are not held, whatever their number,
// neither after a reload nor after a restart, and also not during a hold.
func TestChangedSettings_HoldNoLoss(t *testing.T) {
	t.Parallel()
	const moving, leaving = ", transform: {namespaces: {shop: other}}", ", transform: {exclude: [{names: [s*]}]}"
	for _, how := range []string{"reload", "restart"} {
		edit := func(t *testing.T, r *rig, settings string) *rig {
			t.Helper()
			if how == "reload" {
				r.reload(t, "name: a, address: 'fs://./one'"+settings)
				return r
			}
			r.stop()
			configured(t, r.dir, "name: a, address: 'fs://./one'"+settings)
			return start(t, r.dir)
		}
		for settings, namespace := range map[string]string{moving: "other", leaving: ""} {
			t.Run(how+settings, func(t *testing.T) {
				r := serve(t, []string{"one/f.yaml: shop/s*40 mesh/x"}, "name: a, address: 'fs://./one'")
				r.awaitReady(t)
				r = edit(t, r, settings)
				want := []string{"ServiceEntry mesh/x"}
				if namespace != "" {
					for _, name := range numbered(40) {
						want = append(want, strings.Replace(name, "shop", namespace, 1))
					}
				}
				awaitObjects(t, subscribeBoth(t, r, nil), want...)
				require.Nil(t, r.supervisor.Status()[0].Held)
				if how == "reload" {
					await(t, func() bool {
						log := r.log.String()
						return strings.Contains(log, "the reload removed objects") && strings.Contains(log, "objects=40")
					})
				}
			})
		}
		t.Run(how+" while something is held", func(t *testing.T) {
			r, names := serveUnreadable(t, t.TempDir())
			r = edit(t, r, ", transform: {exclude: [{names: [well]}]}")
			others := slices.DeleteFunc(names, func(name string) bool { return name == "ServiceEntry shop/well" })
			awaitObjects(t, subscribeBoth(t, r, nil), others...)
			r.awaitHeld(t, 40)
		})
	}
}

// described names the objects that a relay's view has, VirtualServices with their first host.
func described(t *testing.T, r *rig) string {
	var names []string
	for res := range r.view.Snapshot().All() {
		name := keyOf(res)
		spec, err := res.Spec()
		require.NoError(t, err)
		if vs, ok := spec.(*networking.VirtualService); ok {
			name += " " + vs.GetHosts()[0]
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// TestRestart_ChangedReadingKeepsUnreadableObjects is TestReload_ChangedReadingKeepsUnreadableObjects for a
// configuration that was edited while no process ran.
func TestRestart_ChangedReadingKeepsUnreadableObjects(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rig, names := serveUnreadable(t, dir)
	rig.stop()
	configured(t, dir, "name: a, address: 'fs://./one', transform: {labels: {add: {team: x}}}")
	for range 2 {
		rig = startReady(t, dir)
		clients := subscribeBoth(t, rig, neverMissing(t, names...))
		awaitObjects(t, clients, names...)
		rig.awaitHeld(t, 40)
		rig.stop()
	}
	await(t, func() bool { // the state of the former settings is removed later
		rig = start(t, dir)
		defer rig.stop()
		rig.awaitReady(t)
		return len(glob(t, dir+"/state/sources/*.db")) == 1
	})
}

// TestReload_ChangedNamespaceKeepsUnreadableNames: a transform that changes the namespace of all objects moves all
// readable objects. Unreadable objects keep their name until they can be read.
func TestReload_ChangedNamespaceKeepsUnreadableNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	broken := strings.Replace(entry("shop", "x", 80), "hosts", "host", 1)
	fill(t, dir, "one/x.yaml: shop/x", "one/rest.yaml: shop/s*40")
	moving := "name: a, address: 'fs://./one', transform: {namespaces: {shop: other}}"
	staying := "name: a, address: 'fs://./one'"
	served := func(namespace string) (names []string) {
		for _, name := range numbered(40) {
			names = append(names, strings.Replace(name, "shop", namespace, 1))
		}
		return names
	}
	configured(t, dir, staying)
	rig := start(t, dir)
	clients := subscribeBoth(t, rig, nil)
	awaitObjects(t, clients, append(served("shop"), x)...)
	write(t, dir+"/one/x.yaml", broken)
	await(t, func() bool { return len(rig.supervisor.Status()[0].Quarantined) == 1 })
	rig.reload(t, moving)
	awaitObjects(t, clients, append(served("other"), x)...)
	write(t, dir+"/one/x.yaml", "# still\n"+broken)
	fill(t, dir, "one/rest.yaml: shop/s*39")
	awaitObjects(t, clients, append(served("other")[:39], x)...)
	rig.stop()
	rig = start(t, dir)
	clients = subscribeBoth(t, rig, nil)
	awaitObjects(t, clients, append(served("other")[:39], x)...)
	for _, n := range []int{38, 37, 39} { // after a restart, time and again
		write(t, dir+"/one/x.yaml", fmt.Sprintf("# still, beside %d\n%s", n, broken))
		write(t, dir+"/one/rest.yaml", entries("shop", "s", n))
		awaitObjects(t, clients, append(served("other")[:n], x)...)
	}
	fill(t, dir, "one/x.yaml: shop/x")
	awaitObjects(t, clients, append(served("other")[:39], "ServiceEntry other/x")...)

	// An unreadable document may be any object, but not one that exists under another name.
	write(t, dir+"/one/rest.yaml", entries("shop", "s", 39)+"a: [\n")
	await(t, func() bool { return len(rig.supervisor.Status()[0].Quarantined) == 1 })
	rig.reload(t, staying)
	awaitObjects(t, clients, append(served("shop")[:39], x)...)
	rig.stop()
	rig = start(t, dir)
	awaitObjects(t, subscribeBoth(t, rig, nil), append(served("shop")[:39], x)...)
}

// TestReload_ReportsOrder: the order of sources decides which of them wins.
func TestReload_ReportsOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fill(t, dir, "one/f.yaml: shop/x", "two/f.yaml: shop/x:81")
	first, two := "name: a, address: 'fs://./one'", "name: b, address: 'fs://./two'"
	configured(t, dir, first, two)
	rig := startReady(t, dir)
	configured(t, dir, two, first)
	result, err := rig.reloader.Reload(t.Context(), "the test")
	require.NoError(t, err)
	require.Contains(t, result, "the order of the sources changed")
	require.Contains(t, rig.log.String(), "reordered=true")
}
