package aggregate

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
)

// TestTransition_KeepsLead reloads two merged sources: the second one reads another place, now before the first, and a
// third one reads its former place. The first source leads their entry before and after the reload, and so meanwhile,
// although an unread source begins with the objects of its former place.
func TestTransition_KeepsLead(t *testing.T) {
	for _, first := range []string{"second", "third"} {
		t.Run(first+" is read first", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testTransitionKeepsLead(t, first == "second") })
		})
	}
}

func testTransitionKeepsLead(t *testing.T, secondFirst bool) {
	object := func(address string, labels map[string]string) *resource.Resource {
		entry := listed{host: "a.example", ports: []uint32{80}, addresses: []string{address}}.resource(t, keyOf("x"))
		return resource.FromBody(resource.Meta{Key: entry.Key(), Labels: labels}, entry.Body())
	}
	labels := map[string]string{"t": "u"}
	lead, former, moved, third := memstore.New(), memstore.New(), memstore.New(), memstore.New()
	put(lead, object("10.0.0.1", labels))
	put(former, object("10.0.0.2", nil))
	lead.MarkSynced()
	former.MarkSynced()
	view := start(t, merging("first", lead), merging("second", former))
	requireLead := func(message string) {
		t.Helper()
		synctest.Wait()
		entry := view.Snapshot().Get(keyOf("a.example-80"))
		require.NotNil(t, entry, message)
		require.Equal(t, labels, entry.Labels(), message)
		require.Contains(t, saying(t, entry), "[10.0.0.1@ 10.0.0.2@]", message)
	}
	requireLead("before")

	put(moved, object("10.0.0.2", nil))
	view.SetSources(merging("second", moved), merging("first", lead), merging("third", third))
	requireLead("no new source is read")
	read := func(store *memstore.Store) {
		if store == moved {
			remove(moved, keyOf("x"))
		} else {
			put(third, object("10.0.0.2", nil))
		}
		requireLead("a new source is read in part")
		store.MarkSynced()
		requireLead("a new source is read")
	}
	stores := []*memstore.Store{moved, third}
	if !secondFirst {
		slices.Reverse(stores)
	}
	for _, store := range stores {
		read(store)
	}
	require.Equal(t, []string{"first", "third"}, memberNames(view.Explain(keyOf("a.example-80")).Merged.Members))

	// Now the third source comes first. It leads as soon as it is read.
	view.SetSources(merging("third", third), merging("first", lead), merging("unread", memstore.New()))
	synctest.Wait()
	require.Empty(t, view.Snapshot().Get(keyOf("a.example-80")).Labels())
}
