package sourcetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/sources"
)

func publishes(t *testing.T, rig *rig) {
	rig.Put("apple", 1)
	rig.Put("pear", 1)
	rig.start()
	rig.awaitSync()
	require.Equal(t, 2, rig.table.syncedWith, "synced means that the first full read is in")
	require.NotEmpty(t, rig.version("apple"))
	require.NotEmpty(t, rig.version("pear"))
	rig.awaitState(sources.Healthy)
	r := rig.table.Snapshot().Get(rig.Key("apple"))
	require.Equal(t, name, r.Origin().Source)
	require.NotEmpty(t, r.Origin().Place, "an origin names a place that a person can open")
}

func syncsEmpty(t *testing.T, rig *rig) {
	rig.start()
	rig.awaitSync()
	rig.awaitState(sources.Healthy)
	require.Zero(t, rig.table.Snapshot().Len())
	rig.Put("apple", 1)
	rig.awaitObject("apple")
}

func follows(t *testing.T, rig *rig) {
	rig.Put("apple", 1)
	rig.Put("pear", 1)
	rig.start()
	rig.awaitSync()
	first := rig.version("apple")
	rig.Put("apple", 2)
	second := rig.awaitObject("apple", first)
	rig.Put("apple", 3)
	rig.awaitObject("apple", first, second)
	rig.Put("quince", 1)
	rig.awaitObject("quince")
	require.Zero(t, rig.table.count(rig.Key("pear"), memstore.Updated), "pear did not change")
	rig.neverDeleted("apple", "pear")
}

func unchanged(t *testing.T, rig *rig) {
	rig.Put("apple", 1)
	rig.start()
	rig.awaitSync()
	rig.Put("apple", 1)
	rig.Put("pear", 1) // a mark: it comes after the other
	rig.awaitObject("pear")
	require.Equal(t, 1, rig.table.count(rig.Key("apple"), memstore.Added))
	require.Zero(t, rig.table.count(rig.Key("apple"), memstore.Updated))
	rig.neverDeleted("apple")
}

func withdraws(_ *testing.T, rig *rig) {
	rig.Put("apple", 1)
	rig.Put("pear", 1)
	rig.start()
	rig.awaitSync()
	rig.Delete("apple")
	rig.awaitGone("apple")
	rig.Delete("pear") // the last one, too
	rig.awaitGone("pear")
	rig.awaitState(sources.Healthy)
	rig.Put("apple", 2)
	rig.awaitObject("apple")
}

func runsAgain(t *testing.T, rig *rig) {
	rig.Put("apple", 1)
	rig.Put("pear", 1)
	rig.start()
	rig.awaitSync()
	for range 3 {
		rig.restart(func() {})
	}
	rig.Put("quince", 1)
	rig.awaitObject("quince")
	rig.neverDeleted("apple", "pear")
	require.Equal(t, 1, rig.table.count(rig.Key("apple"), memstore.Added))
	require.Zero(t, rig.table.count(rig.Key("apple"), memstore.Updated), "apple did not change")
}

func catchesUp(t *testing.T, rig *rig) {
	rig.Put("apple", 1)
	rig.Put("pear", 1)
	rig.Put("plum", 1)
	rig.start()
	rig.awaitSync()
	pear := rig.version("pear")
	rig.restart(func() {
		rig.Delete("apple")
		rig.Put("pear", 2)
		rig.Put("quince", 1)
	})
	rig.awaitGone("apple")
	rig.awaitObject("pear", pear)
	rig.awaitObject("quince")
	rig.neverDeleted("pear", "plum")
	require.Zero(t, rig.table.count(rig.Key("plum"), memstore.Updated), "plum did not change")
}

func sameVersions(t *testing.T, setup *rig) {
	setup.Put("apple", 1)
	setup.start()
	setup.awaitSync()
	first := setup.version("apple")
	setup.Put("apple", 2)
	setup.awaitObject("apple", first)
	setup.Put("apple", 1)
	setup.await("apple is as it was", func() bool { return setup.version("apple") == first })
	setup.stop() // its leaks must not count for the next source
	fresh := &rig{Harness: setup.Harness, t: t, table: &recorder{}}
	fresh.start()
	fresh.awaitSync()
	require.Equal(t, first, fresh.version("apple"), "versions are made of content only")
	fresh.stop()
}

func holdsUnreachable(t *testing.T, rig *rig) {
	rig.Put("apple", 1)
	rig.Put("pear", 1)
	rig.start()
	rig.awaitSync()
	holds(t, rig, rig.Unreachable, sources.Unreachable, sources.Denied)
}

func holdsDenied(t *testing.T, rig *rig) {
	denier, ok := rig.Harness.(Denier)
	if !ok {
		t.Skip("the harness cannot deny")
	}
	rig.Put("apple", 1)
	rig.Put("pear", 1)
	rig.start()
	rig.awaitSync()
	holds(t, rig, denier.Deny, sources.Denied)
}

// holds checks that a fault is reported and loses no object, and that changes arrive afterwards.
func holds(t *testing.T, rig *rig, begin func(), shownAs ...sources.State) {
	apple := rig.version("apple")
	begin()
	rig.awaitState(shownAs...)
	require.NotEmpty(t, rig.status().Message)
	rig.restart(func() {}) // a source that starts in trouble must not take it for an empty system
	rig.awaitState(shownAs...)
	rig.Restore()
	rig.awaitState(sources.Healthy)
	require.Zero(t, rig.table.count(rig.Key("apple"), memstore.Updated), "it stays as it was, with all that is in it")
	rig.Put("apple", 2)
	rig.awaitObject("apple", apple)
	rig.neverDeleted("apple", "pear")
	require.Zero(t, rig.table.count(rig.Key("pear"), memstore.Updated), "it stays as it was, with all that is in it")
	require.True(t, rig.status().Synced)
}

func waitsToSync(t *testing.T, rig *rig) {
	rig.Put("apple", 1)
	rig.Unreachable()
	rig.start()
	rig.awaitState(sources.Unreachable, sources.Denied)
	require.False(t, rig.table.Synced(), "an unread system does not count as empty")
	rig.Restore()
	rig.awaitSync()
	require.Equal(t, 1, rig.table.syncedWith)
	rig.awaitState(sources.Healthy)
}

func keepsLastGood(t *testing.T, rig *rig) {
	breaker, ok := rig.Harness.(Breaker)
	if !ok {
		t.Skip("the harness cannot break an object")
	}
	rig.Put("apple", 1)
	rig.Put("pear", 1)
	rig.start()
	rig.awaitSync()
	apple, pear := rig.version("apple"), rig.version("pear")
	breaker.Break("apple")
	rig.await("apple is quarantined", func() bool { return len(rig.status().Quarantined) == 1 })
	q := rig.status().Quarantined[0]
	require.True(t, q.LastGoodServes)
	require.NotEmpty(t, q.Reason)
	require.NotEmpty(t, q.Place)
	rig.Put("pear", 2)
	rig.awaitObject("pear", pear)
	require.Equal(t, apple, rig.version("apple"))
	rig.restart(func() {})
	rig.Put("quince", 1)
	rig.awaitObject("quince")
	require.Equal(t, apple, rig.version("apple"))
	rig.Put("apple", 2)
	rig.awaitObject("apple", apple)
	rig.await("the quarantine ends", func() bool { return len(rig.status().Quarantined) == 0 })
	rig.neverDeleted("apple", "pear")
}

func startsInvalid(t *testing.T, rig *rig) {
	breaker, ok := rig.Harness.(Breaker)
	if !ok {
		t.Skip("the harness cannot break an object")
	}
	rig.Put("apple", 1)
	rig.Put("pear", 1)
	breaker.Break("apple")
	rig.start()
	rig.awaitSync()
	require.NotEmpty(t, rig.version("pear"))
	require.Empty(t, rig.version("apple"))
	require.Len(t, rig.status().Quarantined, 1)
	require.False(t, rig.status().Quarantined[0].LastGoodServes)
}

func ends(_ *testing.T, rig *rig) {
	rig.Put("apple", 1)
	for range 3 {
		once := newRig(rig.t, rig.Harness)
		once.start()
		once.stop()
	}
	rig.start()
	rig.awaitSync()
	rig.Unreachable()
	rig.awaitState(sources.Unreachable, sources.Denied)
	rig.stop()
}
