package consulkv

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/memstore/storetest"
	"tributary/resource"
	"tributary/sources/consul/consultest"
	"tributary/sources/consul/dial"
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
	consul := consultest.New(t)
	consul.Set("mesh/by-hand.yaml", before)
	store := newStore(t, consul)
	_, err := store.Update(decoded(t, entryText("a", 81)), "")
	require.NoError(t, err)
	after := consul.Get("mesh/by-hand.yaml")
	require.Contains(t, after, "number: 81")
	parts, former := documents([]byte(after)), documents([]byte(before))
	require.Equal(t, former[0], parts[0], "every byte of the others stays")
	require.Equal(t, former[2], parts[2])
	require.True(t, strings.HasPrefix(string(parts[1]), "--- # the one\n"))

	require.NoError(t, store.Delete(keyA, ""))
	after = consul.Get("mesh/by-hand.yaml")
	require.Equal(t, string(former[0])+string(former[2]), after)
	for _, name := range []string{"z", "c"} {
		require.NoError(t, store.Delete(resource.Key{Kind: resource.ServiceEntry, Namespace: "shop", Name: name}, ""))
	}
	require.Empty(t, consul.Keys(), "an empty key is deleted")
}

func TestStore_AddsObjectsBesideOthers(t *testing.T) {
	consul := consultest.New(t)
	consul.Set("mesh/serviceentries/shop/a", strings.TrimSuffix(entryText("b", 80), "\n")) // an odd choice of a user
	s := newStore(t, consul)
	_, err := s.Create(decoded(t, entryText("a", 80)))
	require.NoError(t, err)
	require.NotNil(t, s.Get(keyA))
	fresh := newStore(t, consul)
	require.NoError(t, fresh.Refresh(t.Context()))
	require.Len(t, fresh.List(resource.ServiceEntry), 2)
}

func TestStore_RefusesPartialWrites(t *testing.T) {
	consul := consultest.New(t)
	list := "apiVersion: v1\nkind: List\nitems:\n- " + strings.ReplaceAll(strings.TrimSpace(entryText("a", 80)), "\n", "\n  ") +
		"\n- " + strings.ReplaceAll(strings.TrimSpace(entryText("b", 80)), "\n", "\n  ") + "\n"
	consul.Set("mesh/list.yaml", list)
	s := newStore(t, consul)
	_, err := s.Update(decoded(t, entryText("a", 81)), "")
	require.ErrorContains(t, err, "update ServiceEntry shop/a: key mesh/list.yaml has it in a list with others")
	require.ErrorContains(t, s.Delete(keyA, ""), "in a list with others")
	now := consul.Get("mesh/list.yaml")
	require.Equal(t, list, now)
}

func TestBrokenNeighboursSurvive(t *testing.T) {
	consul := consultest.New(t)
	consul.Set("mesh/x.yaml", entryText("a", 80)+"---\nkind: [\n")
	store := newStore(t, consul)
	_, err := store.Update(decoded(t, entryText("a", 81)), "")
	require.NoError(t, err)
	require.Len(t, store.Rejects(), 1)
	require.NoError(t, store.Delete(keyA, ""))
	now := consul.Get("mesh/x.yaml")
	require.Equal(t, "---\nkind: [\n", now, "the store does not delete values that it cannot read")
}

func TestDeleteLeavesNoneBehind(t *testing.T) {
	consul := consultest.New(t)
	consul.Set("mesh/1.yaml", entryText("a", 80)+"---\n"+entryText("a", 81)+"---\n"+entryText("b", 80))
	consul.Set("mesh/2.yaml", entryText("a", 82))
	s := newStore(t, consul)
	require.NoError(t, s.Delete(keyA, ""))
	require.Nil(t, s.Get(keyA))
	require.Equal(t, []string{"mesh/1.yaml"}, consul.Keys())
}

func TestVersions_AreConsulIndexes(t *testing.T) {
	consul := consultest.New(t)
	store := newStore(t, consul)
	v1, err := store.Create(decoded(t, entryText("a", 80)))
	require.NoError(t, err)
	require.Equal(t, v1, store.Version(keyA))
	require.False(t, store.Get(keyA).Created().IsZero())
	second := newStore(t, consul)
	v2, err := second.Update(decoded(t, entryText("a", 81)), v1)
	require.NoError(t, err)
	_, err = store.Update(decoded(t, entryText("a", 82)), v1)
	require.ErrorIs(t, err, memstore.ErrConflict)
	require.ErrorContains(t, err, "it is "+v2+", not "+v1)
	require.Equal(t, v2, store.Version(keyA), "the store has the values that it read meanwhile")
	require.Equal(t, store.Get(keyA).Created(), second.Get(keyA).Created())
	require.ErrorIs(t, store.Delete(keyA, v1), memstore.ErrConflict)
	require.NoError(t, store.Delete(keyA, v2))
	require.ErrorIs(t, second.Delete(keyA, ""), memstore.ErrNotFound)
}

// testContract tests the rules of mutators, with stores that open opens in the same place.
func testContract(t *testing.T, open func(t *testing.T) *Store) {
	s := open(t)
	_, err := s.Update(decoded(t, entryText("a", 80)), "")
	require.ErrorIs(t, err, memstore.ErrNotFound)
	require.Nil(t, s.Get(keyA))
	_, err = s.Create(storetest.New("Ingress", "ns", "a", "1"))
	require.ErrorIs(t, err, memstore.ErrUnknownKind)
	version, err := s.Create(decoded(t, entryText("a", 80)))
	require.NoError(t, err)
	_, err = s.Create(decoded(t, entryText("a", 81)))
	require.ErrorIs(t, err, memstore.ErrExists)
	require.ErrorContains(t, err, keyA.String())
	require.True(t, resource.Equal(s.Get(keyA), decoded(t, entryText("a", 80)).WithCreated(s.Get(keyA).Created())))
	same, err := s.Update(decoded(t, entryText("a", 80)), version)
	require.NoError(t, err)
	require.Equal(t, version, same, "an update that changes no content")
	require.NoError(t, s.Delete(keyA, version))

	t.Run("Of concurrent creates one succeeds", func(t *testing.T) {
		errs := make([]error, 8)
		var creates sync.WaitGroup
		for i := range errs {
			store := open(t)
			creates.Go(func() { _, errs[i] = store.Create(decoded(t, entryText("a", 1+i))) })
		}
		creates.Wait()
		created := slices.Index(errs, nil)
		require.GreaterOrEqual(t, created, 0)
		for i, err := range errs {
			if i != created {
				require.ErrorIs(t, err, memstore.ErrExists)
			}
		}
		require.NoError(t, s.Refresh(t.Context()))
		require.True(t, resource.Equal(s.Get(keyA), decoded(t, entryText("a", 1+created)).WithCreated(s.Get(keyA).Created())))
	})
	t.Run("Concurrent updates lose nothing", func(t *testing.T) {
		const workers, times = 4, 50
		versions := make(map[string]bool)
		var mu sync.Mutex
		var updates sync.WaitGroup
		for worker := range workers {
			store := open(t)
			updates.Go(func() {
				for n := 0; n < times; {
					if err := store.Refresh(t.Context()); err != nil {
						t.Error(err)
						return
					}
					before := store.Version(keyA)
					_, err := store.Update(decoded(t, entryText("a", 100+worker*times+n)), before)
					switch {
					case errors.Is(err, memstore.ErrConflict):
						continue
					case err != nil:
						t.Error(err)
						return
					}
					mu.Lock()
					if versions[before] {
						t.Error("two updates of version", before)
					}
					versions[before] = true
					mu.Unlock()
					n++
				}
			})
		}
		updates.Wait()
	})
}

func TestStore(t *testing.T) {
	c := consultest.New(t)
	testContract(t, func(t *testing.T) *Store { return newStore(t, c) })
}

func TestWritesFailClearly(t *testing.T) {
	c := consultest.New(t)
	store := newStore(t, c)
	require.NoError(t, store.Refresh(t.Context()))
	c.Answer(http.StatusForbidden, "Permission denied")
	_, err := store.Create(decoded(t, entryText("a", 80)))
	require.ErrorContains(t, err, "create ServiceEntry shop/a: consul-kv "+c.Address()+": read key mesh/serviceentries/shop/a: ")
	require.ErrorContains(t, err, `it needs key_prefix "mesh/" { policy = "read" }`)
	require.Equal(t, dial.Denied, dial.Classify(err).Kind)
	c.Fail(consultest.ErrHungUp)
	_, err = store.Create(decoded(t, entryText("a", 80)))
	require.ErrorContains(t, err, c.Address())
	c.Restore()
	c.Edit(func() { c.ReadOnly = true })
	_, err = store.Create(decoded(t, entryText("a", 80)))
	require.ErrorContains(t, err, `write key mesh/serviceentries/shop/a`)
	require.ErrorContains(t, err, `policy = "write"`)
	require.Nil(t, store.Get(keyA), "a failed write changes no object")
	require.Empty(t, c.Keys())
}

// Refresh gets the present objects, also after Consul lost its data.
func TestRefreshAfterAWipe(t *testing.T) {
	consul := consultest.New(t)
	filled(consul, 0, 9)
	s := newStore(t, consul)
	require.NoError(t, s.Refresh(t.Context()))
	consul.Wipe()
	consul.Set("mesh/new", entryText("new", 80))
	require.NoError(t, s.Refresh(t.Context()))
	require.NotNil(t, s.Get(resource.Key{Kind: resource.ServiceEntry, Namespace: "shop", Name: "new"}), "objects written since")
	require.Nil(t, s.Get(resource.Key{Kind: resource.ServiceEntry, Namespace: "shop", Name: "r0"}))
}
