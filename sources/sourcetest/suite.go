package sourcetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/sources"
)

func publishes(t *testing.T, b *rig) {
	b.Put("apple", 1)
	b.Put("pear", 1)
	b.start()
	b.awaitSync()
	require.Equal(t, 2, b.table.syncedWith, "synced means that the first full read is in")
	require.NotEmpty(t, b.version("apple"))
	require.NotEmpty(t, b.version("pear"))
	b.awaitState(sources.Healthy)
	r := b.table.Snapshot().Get(b.Key("apple"))
	require.Equal(t, name, r.Origin().Source)
	require.NotEmpty(t, r.Origin().Place, "an origin names a place that a person can open")
}

func syncsEmpty(t *testing.T, b *rig) {
	b.start()
	b.awaitSync()
	b.awaitState(sources.Healthy)
	require.Zero(t, b.table.Snapshot().Len())
	b.Put("apple", 1)
	b.awaitObject("apple")
}

func follows(t *testing.T, b *rig) {
	b.Put("apple", 1)
	b.Put("pear", 1)
	b.start()
	b.awaitSync()
	first := b.version("apple")
	b.Put("apple", 2)
	second := b.awaitObject("apple", first)
	b.Put("apple", 3)
	b.awaitObject("apple", first, second)
	b.Put("quince", 1)
	b.awaitObject("quince")
	require.Zero(t, b.table.count(b.Key("pear"), memstore.Updated), "pear did not change")
	b.neverDeleted("apple", "pear")
}

func unchanged(t *testing.T, b *rig) {
	b.Put("apple", 1)
	b.start()
	b.awaitSync()
	b.Put("apple", 1)
	b.Put("pear", 1) // a mark: it comes after the other
	b.awaitObject("pear")
	require.Equal(t, 1, b.table.count(b.Key("apple"), memstore.Added))
	require.Zero(t, b.table.count(b.Key("apple"), memstore.Updated))
	b.neverDeleted("apple")
}

func withdraws(_ *testing.T, b *rig) {
	b.Put("apple", 1)
	b.Put("pear", 1)
	b.start()
	b.awaitSync()
	b.Delete("apple")
	b.awaitGone("apple")
	b.Delete("pear") // the last one, too
	b.awaitGone("pear")
	b.awaitState(sources.Healthy)
	b.Put("apple", 2)
	b.awaitObject("apple")
}

func runsAgain(t *testing.T, b *rig) {
	b.Put("apple", 1)
	b.Put("pear", 1)
	b.start()
	b.awaitSync()
	for range 3 {
		b.restart(func() {})
	}
	b.Put("quince", 1)
	b.awaitObject("quince")
	b.neverDeleted("apple", "pear")
	require.Equal(t, 1, b.table.count(b.Key("apple"), memstore.Added))
	require.Zero(t, b.table.count(b.Key("apple"), memstore.Updated), "apple did not change")
}

func catchesUp(t *testing.T, b *rig) {
	b.Put("apple", 1)
	b.Put("pear", 1)
	b.Put("plum", 1)
	b.start()
	b.awaitSync()
	pear := b.version("pear")
	b.restart(func() {
		b.Delete("apple")
		b.Put("pear", 2)
		b.Put("quince", 1)
	})
	b.awaitGone("apple")
	b.awaitObject("pear", pear)
	b.awaitObject("quince")
	b.neverDeleted("pear", "plum")
	require.Zero(t, b.table.count(b.Key("plum"), memstore.Updated), "plum did not change")
}

func sameVersions(t *testing.T, b *rig) {
	b.Put("apple", 1)
	b.start()
	b.awaitSync()
	first := b.version("apple")
	b.Put("apple", 2)
	b.awaitObject("apple", first)
	b.Put("apple", 1)
	b.await("apple is as it was", func() bool { return b.version("apple") == first })
	b.stop() // its leaks must not count for the next source
	fresh := &rig{Harness: b.Harness, t: t, table: &recorder{}}
	fresh.start()
	fresh.awaitSync()
	require.Equal(t, first, fresh.version("apple"), "versions are made of content only")
	fresh.stop()
}

func holdsUnreachable(t *testing.T, b *rig) {
	b.Put("apple", 1)
	b.Put("pear", 1)
	b.start()
	b.awaitSync()
	holds(t, b, b.Unreachable, sources.Unreachable, sources.Denied)
}

func holdsDenied(t *testing.T, b *rig) {
	denier, ok := b.Harness.(Denier)
	if !ok {
		t.Skip("the harness cannot deny")
	}
	b.Put("apple", 1)
	b.Put("pear", 1)
	b.start()
	b.awaitSync()
	holds(t, b, denier.Deny, sources.Denied)
}

// holds checks that a fault is reported and loses no object, and that changes arrive afterwards.
func holds(t *testing.T, b *rig, begin func(), shownAs ...sources.State) {
	apple := b.version("apple")
	begin()
	b.awaitState(shownAs...)
	require.NotEmpty(t, b.status().Message)
	b.restart(func() {}) // a source that starts in trouble must not take it for an empty system
	b.awaitState(shownAs...)
	b.Restore()
	b.awaitState(sources.Healthy)
	require.Zero(t, b.table.count(b.Key("apple"), memstore.Updated), "it stays as it was, with all that is in it")
	b.Put("apple", 2)
	b.awaitObject("apple", apple)
	b.neverDeleted("apple", "pear")
	require.Zero(t, b.table.count(b.Key("pear"), memstore.Updated), "it stays as it was, with all that is in it")
	require.True(t, b.status().Synced)
}

func waitsToSync(t *testing.T, b *rig) {
	b.Put("apple", 1)
	b.Unreachable()
	b.start()
	b.awaitState(sources.Unreachable, sources.Denied)
	require.False(t, b.table.Synced(), "an unread system does not count as empty")
	b.Restore()
	b.awaitSync()
	require.Equal(t, 1, b.table.syncedWith)
	b.awaitState(sources.Healthy)
}

func keepsLastGood(t *testing.T, b *rig) {
	breaker, ok := b.Harness.(Breaker)
	if !ok {
		t.Skip("the harness cannot break an object")
	}
	b.Put("apple", 1)
	b.Put("pear", 1)
	b.start()
	b.awaitSync()
	apple, pear := b.version("apple"), b.version("pear")
	breaker.Break("apple")
	b.await("apple is quarantined", func() bool { return len(b.status().Quarantined) == 1 })
	q := b.status().Quarantined[0]
	require.True(t, q.LastGoodServes)
	require.NotEmpty(t, q.Reason)
	require.NotEmpty(t, q.Place)
	b.Put("pear", 2)
	b.awaitObject("pear", pear)
	require.Equal(t, apple, b.version("apple"))
	b.restart(func() {})
	b.Put("quince", 1)
	b.awaitObject("quince")
	require.Equal(t, apple, b.version("apple"))
	b.Put("apple", 2)
	b.awaitObject("apple", apple)
	b.await("the quarantine ends", func() bool { return len(b.status().Quarantined) == 0 })
	b.neverDeleted("apple", "pear")
}

func startsInvalid(t *testing.T, b *rig) {
	breaker, ok := b.Harness.(Breaker)
	if !ok {
		t.Skip("the harness cannot break an object")
	}
	b.Put("apple", 1)
	b.Put("pear", 1)
	breaker.Break("apple")
	b.start()
	b.awaitSync()
	require.NotEmpty(t, b.version("pear"))
	require.Empty(t, b.version("apple"))
	require.Len(t, b.status().Quarantined, 1)
	require.False(t, b.status().Quarantined[0].LastGoodServes)
}

func ends(_ *testing.T, b *rig) {
	b.Put("apple", 1)
	for range 3 {
		once := newRig(b.t, b.Harness)
		once.start()
		once.stop()
	}
	b.start()
	b.awaitSync()
	b.Unreachable()
	b.awaitState(sources.Unreachable, sources.Denied)
	b.stop()
}
