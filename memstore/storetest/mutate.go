package storetest

import (
	"errors"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
)

var key = resource.Key{Kind: resource.ServiceEntry, Namespace: "ns", Name: "a"}

func entry(content string) *resource.Resource { return New(key.Kind, key.Namespace, key.Name, content) }

func testReadOnly(t *testing.T, subject *subject) {
	subject.put(t, entry("1"))
	keep := func(r *resource.Resource) (*resource.Resource, error) { return r, nil }

	_, err := subject.Store.Create(New(resource.ServiceEntry, "ns", "b", "2"))
	require.ErrorIs(t, err, memstore.ErrReadOnly)
	_, err = subject.Store.Update(entry("2"), "")
	require.ErrorIs(t, err, memstore.ErrReadOnly)
	_, err = subject.Store.Patch(key, keep)
	require.ErrorIs(t, err, memstore.ErrReadOnly)
	_, err = subject.Store.UpdateStatus(entry("2"))
	require.ErrorIs(t, err, errors.ErrUnsupported)
	err = subject.Store.Delete(key, "")
	require.ErrorIs(t, err, memstore.ErrReadOnly)
	require.ErrorContains(t, err, key.String(), "the error names the key")

	require.Equal(t, []string{"ns/a=1"}, names(subject.Store.List(key.Kind, "")))
}

func testMutators(each func(string, func(*testing.T, *subject))) {
	each("Create adds once", func(t *testing.T, subject *subject) {
		version, err := subject.Store.Create(entry("1"))
		require.NoError(t, err)
		subject.requireVersion(t, entry("1"), version)
		require.Equal(t, "1", Content(subject.Store.Get(key)))

		_, err = subject.Store.Create(entry("2"))
		require.ErrorIs(t, err, memstore.ErrExists)
		require.ErrorContains(t, err, key.String())
		require.Equal(t, "1", Content(subject.Store.Get(key)), "a failed Create has no side effect")
	})

	each("Update needs the resource", func(t *testing.T, subject *subject) {
		_, err := subject.Store.Update(entry("1"), "")
		require.ErrorIs(t, err, memstore.ErrNotFound)
		require.Nil(t, subject.Store.Get(key))
	})

	each("Update needs the version it was made from", func(t *testing.T, subject *subject) {
		first, err := subject.Store.Create(entry("1"))
		require.NoError(t, err)
		v2, err := subject.Store.Update(entry("2"), first)
		require.NoError(t, err)
		require.NotEqual(t, first, v2)

		_, err = subject.Store.Update(entry("3"), first)
		require.ErrorIs(t, err, memstore.ErrConflict)
		require.Equal(t, "2", Content(subject.Store.Get(key)))

		_, err = subject.Store.Update(entry("4"), "")
		require.NoError(t, err, "no version matches any")
		require.Equal(t, "4", Content(subject.Store.Get(key)))
	})

	each("Versions are equal where content is", func(t *testing.T, subject *subject) {
		first, err := subject.Store.Create(entry("1"))
		require.NoError(t, err)
		_, err = subject.Store.Update(entry("2"), first)
		require.NoError(t, err)
		restored, err := subject.Store.Update(entry("1"), "")
		require.NoError(t, err)
		require.Equal(t, first, restored)
	})

	each("An update that changes nothing keeps the version", func(t *testing.T, subject *subject) {
		first, err := subject.Store.Create(entry("1"))
		require.NoError(t, err)
		same, err := subject.Store.Update(entry("1"), first)
		require.NoError(t, err)
		require.Equal(t, first, same)
		_, err = subject.Store.Update(entry("2"), same)
		require.NoError(t, err)
	})

	each("Delete obeys the rules of Update", func(t *testing.T, subject *subject) {
		require.ErrorIs(t, subject.Store.Delete(key, ""), memstore.ErrNotFound)
		first, err := subject.Store.Create(entry("1"))
		require.NoError(t, err)
		second, err := subject.Store.Update(entry("2"), first)
		require.NoError(t, err)
		require.ErrorIs(t, subject.Store.Delete(key, first), memstore.ErrConflict)
		require.Equal(t, "2", Content(subject.Store.Get(key)))
		require.NoError(t, subject.Store.Delete(key, second))
		require.Nil(t, subject.Store.Get(key))
	})

	each("A kind that is not served is refused", func(t *testing.T, subject *subject) {
		_, err := subject.Store.Create(New("Ingress", "ns", "a", "1"))
		require.ErrorIs(t, err, memstore.ErrUnknownKind)
		require.Empty(t, subject.Store.List("Ingress", ""))
	})

	each("UpdateStatus is not supported", func(t *testing.T, subject *subject) {
		subject.put(t, entry("1"))
		_, err := subject.Store.UpdateStatus(entry("2"))
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.Equal(t, "1", Content(subject.Store.Get(key)))
	})

	each("Patch edits what is there", func(t *testing.T, subject *subject) {
		edit := func(r *resource.Resource) (*resource.Resource, error) { return entry(Content(r) + "+"), nil }
		_, err := subject.Store.Patch(key, edit)
		require.ErrorIs(t, err, memstore.ErrNotFound)
		subject.put(t, entry("1"))
		version, err := subject.Store.Patch(key, edit)
		require.NoError(t, err)
		subject.requireVersion(t, entry("1+"), version)
		require.Equal(t, "1+", Content(subject.Store.Get(key)))
	})

	each("A Patch that fails changes nothing", func(t *testing.T, subject *subject) {
		subject.put(t, entry("1"))
		refused := errors.New("refused")
		for name, edit := range map[string]func(*resource.Resource) (*resource.Resource, error){
			"an error":    func(*resource.Resource) (*resource.Resource, error) { return nil, refused },
			"no resource": func(*resource.Resource) (*resource.Resource, error) { return nil, nil },
			"another key": func(*resource.Resource) (*resource.Resource, error) { return New(key.Kind, "ns", "b", "2"), nil },
		} {
			_, err := subject.Store.Patch(key, edit)
			require.ErrorContains(t, err, key.String(), name)
			require.Equal(t, []string{"ns/a=1"}, names(subject.Store.List(key.Kind, "")), name)
		}
	})

	each("Concurrent patches lose nothing", func(t *testing.T, subject *subject) {
		const workers, times = 4, 50
		subject.put(t, entry("0"))
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				for range times {
					_, err := subject.Store.Patch(key, func(r *resource.Resource) (*resource.Resource, error) {
						n, err := strconv.Atoi(Content(r))
						return entry(strconv.Itoa(n + 1)), err
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		require.Equal(t, strconv.Itoa(workers*times), Content(subject.Store.Get(key)))
	})

	each("Of concurrent creates one succeeds", func(t *testing.T, subject *subject) {
		var wg sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			wg.Go(func() { _, errs[i] = subject.Store.Create(entry(strconv.Itoa(i))) })
		}
		wg.Wait()
		winners := 0
		for i, err := range errs {
			if err == nil {
				winners++
				require.Equal(t, strconv.Itoa(i), Content(subject.Store.Get(key)))
			} else {
				require.ErrorIs(t, err, memstore.ErrExists)
			}
		}
		require.Equal(t, 1, winners)
	})
}
