package consulkv

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/memstore/storetest"
	"tributary/resource"
	"tributary/sources/consul/dial"
	"tributary/sources/consulkv/kvtest"
)

var keyA = resource.Key{Kind: resource.ServiceEntry, Namespace: "shop", Name: "a"}

func decoded(t *testing.T, text string) *resource.Resource {
	t.Helper()
	docs := resource.Decode("test", []byte(text), resource.Options{})
	require.Len(t, docs, 1)
	require.Empty(t, docs[0].Errors)
	return docs[0].Resource
}

func TestStore_WritesObjectsInTheirKeys(t *testing.T) {
	before := "# by hand\n" + entryText("z", 1) + "\n--- # the one\n" + entryText("a", 80) + "---\n\n# kept\n" + entryText("c", 2)
	c := kvtest.New(t)
	c.Set("mesh/by-hand.yaml", before)
	s := newStore(t, c)
	_, err := s.Update(decoded(t, entryText("a", 81)), "")
	require.NoError(t, err)
	after, _ := c.Get("mesh/by-hand.yaml")
	require.Contains(t, after, "number: 81")
	parts, former := documents([]byte(after)), documents([]byte(before))
	require.Equal(t, former[0], parts[0], "every byte of the others stays")
	require.Equal(t, former[2], parts[2])
	require.True(t, strings.HasPrefix(string(parts[1]), "--- # the one\n"))

	require.NoError(t, s.Delete(keyA, ""))
	after, _ = c.Get("mesh/by-hand.yaml")
	require.Equal(t, string(former[0])+string(former[2]), after)
	for _, name := range []string{"z", "c"} {
		require.NoError(t, s.Delete(resource.Key{Kind: resource.ServiceEntry, Namespace: "shop", Name: name}, ""))
	}
	require.Empty(t, c.Keys(), "an empty key is deleted")
}

func TestStore_AddsObjectsBesideOthers(t *testing.T) {
	c := kvtest.New(t)
	c.Set("mesh/serviceentries/shop/a", strings.TrimSuffix(entryText("b", 80), "\n")) // an odd choice of a user
	s := newStore(t, c)
	_, err := s.Create(decoded(t, entryText("a", 80)))
	require.NoError(t, err)
	require.NotNil(t, s.Get(keyA))
	fresh := newStore(t, c)
	require.NoError(t, fresh.Refresh(t.Context()))
	require.Len(t, fresh.List(resource.ServiceEntry, ""), 2)
}

func TestStore_RefusesPartialWrites(t *testing.T) {
	c := kvtest.New(t)
	list := "apiVersion: v1\nkind: List\nitems:\n- " + strings.ReplaceAll(strings.TrimSpace(entryText("a", 80)), "\n", "\n  ") +
		"\n- " + strings.ReplaceAll(strings.TrimSpace(entryText("b", 80)), "\n", "\n  ") + "\n"
	c.Set("mesh/list.yaml", list)
	s := newStore(t, c)
	_, err := s.Update(decoded(t, entryText("a", 81)), "")
	require.ErrorContains(t, err, "update ServiceEntry shop/a: key mesh/list.yaml has it in a list with others")
	require.ErrorContains(t, s.Delete(keyA, ""), "in a list with others")
	now, _ := c.Get("mesh/list.yaml")
	require.Equal(t, list, now)
}

func TestBrokenNeighboursSurvive(t *testing.T) {
	c := kvtest.New(t)
	c.Set("mesh/x.yaml", entryText("a", 80)+"---\nkind: [\n")
	s := newStore(t, c)
	_, err := s.Update(decoded(t, entryText("a", 81)), "")
	require.NoError(t, err)
	require.Len(t, s.Rejects(), 1)
	require.NoError(t, s.Delete(keyA, ""))
	now, _ := c.Get("mesh/x.yaml")
	require.Equal(t, "---\nkind: [\n", now, "the store does not delete values that it cannot read")
}

func TestDeleteLeavesNoneBehind(t *testing.T) {
	c := kvtest.New(t)
	c.Set("mesh/1.yaml", entryText("a", 80)+"---\n"+entryText("a", 81)+"---\n"+entryText("b", 80))
	c.Set("mesh/2.yaml", entryText("a", 82))
	s := newStore(t, c)
	require.NoError(t, s.Delete(keyA, ""))
	require.Nil(t, s.Get(keyA))
	require.Equal(t, []string{"mesh/1.yaml"}, c.Keys())
}

func TestVersions_AreConsulIndexes(t *testing.T) {
	c := kvtest.New(t)
	s := newStore(t, c)
	v1, err := s.Create(decoded(t, entryText("a", 80)))
	require.NoError(t, err)
	require.Equal(t, v1, s.Version(keyA))
	require.False(t, s.Get(keyA).Created().IsZero())
	second := newStore(t, c)
	v2, err := second.Update(decoded(t, entryText("a", 81)), v1)
	require.NoError(t, err)
	_, err = s.Update(decoded(t, entryText("a", 82)), v1)
	require.ErrorIs(t, err, memstore.ErrConflict)
	require.ErrorContains(t, err, "it is "+v2+", not "+v1)
	require.Equal(t, v2, s.Version(keyA), "the store has the values that it read meanwhile")
	require.Equal(t, s.Get(keyA).Created(), second.Get(keyA).Created())
	require.ErrorIs(t, s.Delete(keyA, v1), memstore.ErrConflict)
	require.NoError(t, s.Delete(keyA, v2))
	require.ErrorIs(t, second.Delete(keyA, ""), memstore.ErrNotFound)
}

func TestStoresFollowEachOther(t *testing.T) {
	c := kvtest.New(t)
	first, two := newStore(t, c), newStore(t, c)
	ctx, cancel := context.WithCancel(context.Background())
	var runs sync.WaitGroup
	runs.Go(func() { first.Run(ctx) })
	runs.Go(func() { two.Run(ctx) })
	defer runs.Wait()
	defer cancel()
	_, err := first.Create(decoded(t, entryText("a", 80)))
	require.NoError(t, err)
	storetest.Eventually(t, func() bool { return two.Get(keyA) != nil }, "two follows")
	require.NoError(t, two.Delete(keyA, first.Version(keyA)))
	require.Nil(t, two.Get(keyA))
	storetest.Eventually(t, func() bool { return first.Get(keyA) == nil }, "one follows")
	// Whatever the order of the reads and writes of a store, its content never goes back behind its own writes.
	for port := 1; port <= 100; port++ {
		r := decoded(t, entryText("a", port))
		_, err := first.Create(r)
		require.NoError(t, err)
		require.True(t, resource.Equal(r.WithCreated(first.Get(keyA).Created()), first.Get(keyA)))
		require.NoError(t, first.Delete(keyA, ""))
		require.Nil(t, first.Get(keyA))
	}
}

func TestStore_SurvivesWipe(t *testing.T) {
	c := kvtest.New(t)
	for _, key := range []string{"a", "b", "c", "d"} { // so that the index is high
		c.Set("mesh/"+key, entryText(key, 80))
	}
	s := newStore(t, c)
	var notified atomic.Bool
	s.SetWatchErrorHandler(func(err error) {
		if strings.Contains(err.Error(), "Consul seems to have lost its data") {
			notified.Store(true)
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { s.Run(ctx) })
	defer run.Wait()
	defer cancel()
	storetest.Eventually(t, func() bool { return s.HasSynced() && c.Waiting() > 0 }, "sync")
	c.Wipe()
	storetest.Eventually(t, notified.Load, "it is told")
	require.NotNil(t, s.Get(keyA))
	b := s.Get(resource.Key{Kind: resource.ServiceEntry, Namespace: "shop", Name: "b"})
	c.Set("mesh/b", entryText("b", 81))
	storetest.Eventually(t, func() bool { return !resource.Equal(b, s.Get(b.Key())) }, "the present objects")
	require.Len(t, s.List(resource.ServiceEntry, ""), 4, "the others may be written again")
	_, err := s.Create(decoded(t, entryText("a", 82)))
	require.NoError(t, err)
	require.True(t, resource.Equal(decoded(t, entryText("a", 82)).WithCreated(s.Get(keyA).Created()), s.Get(keyA)))
	_, err = s.Update(decoded(t, entryText("a", 83)), "")
	require.NoError(t, err)
	require.NoError(t, s.Delete(keyA, ""))
	require.Nil(t, s.Get(keyA))
	require.Len(t, s.List(resource.ServiceEntry, ""), 3)
}

func TestWritesFailClearly(t *testing.T) {
	c := kvtest.New(t)
	s := newStore(t, c)
	require.NoError(t, s.Refresh(t.Context()))
	c.Answer(http.StatusForbidden, "Permission denied")
	_, err := s.Create(decoded(t, entryText("a", 80)))
	require.ErrorContains(t, err, "create ServiceEntry shop/a: consul-kv "+c.Addr()+": read key mesh/serviceentries/shop/a: ")
	require.ErrorContains(t, err, `it needs key_prefix "mesh/" { policy = "read" }`)
	require.Equal(t, dial.Denied, dial.Classify(err).Kind)
	c.HangUp()
	_, err = s.Create(decoded(t, entryText("a", 80)))
	require.ErrorContains(t, err, c.Addr())
	c.Restore()
	c.DenyWrites()
	_, err = s.Create(decoded(t, entryText("a", 80)))
	require.ErrorContains(t, err, `write key mesh/serviceentries/shop/a`)
	require.ErrorContains(t, err, `policy = "write"`)
	require.Nil(t, s.Get(keyA), "a failed write changes no object")
	require.Empty(t, c.Keys())
}

// Refresh gets the present objects, also after Consul lost its data.
func TestRefreshAfterAWipe(t *testing.T) {
	c := kvtest.New(t)
	filled(c, 0, 9)
	s := newStore(t, c)
	require.NoError(t, s.Refresh(t.Context()))
	c.Wipe()
	c.Set("mesh/new", entryText("new", 80))
	require.NoError(t, s.Refresh(t.Context()))
	require.NotNil(t, s.Get(resource.Key{Kind: resource.ServiceEntry, Namespace: "shop", Name: "new"}), "objects written since")
	require.Nil(t, s.Get(resource.Key{Kind: resource.ServiceEntry, Namespace: "shop", Name: "r0"}))
}
