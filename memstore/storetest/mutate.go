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

func testReadOnly(t *testing.T, s *subject) {
	s.put(t, entry("1"))
	keep := func(r *resource.Resource) (*resource.Resource, error) { return r, nil }

	_, err := s.Store.Create(New(resource.ServiceEntry, "ns", "b", "2"))
	require.ErrorIs(t, err, memstore.ErrReadOnly)
	_, err = s.Store.Update(entry("2"), "")
	require.ErrorIs(t, err, memstore.ErrReadOnly)
	_, err = s.Store.Patch(key, keep)
	require.ErrorIs(t, err, memstore.ErrReadOnly)
	_, err = s.Store.UpdateStatus(entry("2"))
	require.ErrorIs(t, err, errors.ErrUnsupported)
	err = s.Store.Delete(key, "")
	require.ErrorIs(t, err, memstore.ErrReadOnly)
	require.ErrorContains(t, err, key.String(), "the error names the key")

	require.Equal(t, []string{"ns/a=1"}, names(s.Store.List(key.Kind, "")))
}

func testMutators(each func(string, func(*testing.T, *subject))) {
	each("Create adds once", func(t *testing.T, s *subject) {
		version, err := s.Store.Create(entry("1"))
		require.NoError(t, err)
		s.requireVersion(t, entry("1"), version)
		require.Equal(t, "1", Content(s.Store.Get(key)))

		_, err = s.Store.Create(entry("2"))
		require.ErrorIs(t, err, memstore.ErrExists)
		require.ErrorContains(t, err, key.String())
		require.Equal(t, "1", Content(s.Store.Get(key)), "a failed Create has no side effect")
	})

	each("Update needs the resource", func(t *testing.T, s *subject) {
		_, err := s.Store.Update(entry("1"), "")
		require.ErrorIs(t, err, memstore.ErrNotFound)
		require.Nil(t, s.Store.Get(key))
	})

	each("Update needs the version it was made from", func(t *testing.T, s *subject) {
		v1, err := s.Store.Create(entry("1"))
		require.NoError(t, err)
		v2, err := s.Store.Update(entry("2"), v1)
		require.NoError(t, err)
		require.NotEqual(t, v1, v2)

		_, err = s.Store.Update(entry("3"), v1)
		require.ErrorIs(t, err, memstore.ErrConflict)
		require.Equal(t, "2", Content(s.Store.Get(key)))

		_, err = s.Store.Update(entry("4"), "")
		require.NoError(t, err, "no version matches any")
		require.Equal(t, "4", Content(s.Store.Get(key)))
	})

	each("Versions are equal where content is", func(t *testing.T, s *subject) {
		v1, err := s.Store.Create(entry("1"))
		require.NoError(t, err)
		_, err = s.Store.Update(entry("2"), v1)
		require.NoError(t, err)
		again, err := s.Store.Update(entry("1"), "")
		require.NoError(t, err)
		require.Equal(t, v1, again)
	})

	each("An update that changes nothing keeps the version", func(t *testing.T, s *subject) {
		v1, err := s.Store.Create(entry("1"))
		require.NoError(t, err)
		same, err := s.Store.Update(entry("1"), v1)
		require.NoError(t, err)
		require.Equal(t, v1, same)
		_, err = s.Store.Update(entry("2"), same)
		require.NoError(t, err)
	})

	each("Delete obeys the rules of Update", func(t *testing.T, s *subject) {
		require.ErrorIs(t, s.Store.Delete(key, ""), memstore.ErrNotFound)
		v1, err := s.Store.Create(entry("1"))
		require.NoError(t, err)
		v2, err := s.Store.Update(entry("2"), v1)
		require.NoError(t, err)
		require.ErrorIs(t, s.Store.Delete(key, v1), memstore.ErrConflict)
		require.Equal(t, "2", Content(s.Store.Get(key)))
		require.NoError(t, s.Store.Delete(key, v2))
		require.Nil(t, s.Store.Get(key))
	})

	each("A kind that is not served is refused", func(t *testing.T, s *subject) {
		_, err := s.Store.Create(New("Ingress", "ns", "a", "1"))
		require.ErrorIs(t, err, memstore.ErrUnknownKind)
		require.Empty(t, s.Store.List("Ingress", ""))
	})

	each("UpdateStatus is not supported", func(t *testing.T, s *subject) {
		s.put(t, entry("1"))
		_, err := s.Store.UpdateStatus(entry("2"))
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.Equal(t, "1", Content(s.Store.Get(key)))
	})

	each("Patch edits what is there", func(t *testing.T, s *subject) {
		edit := func(r *resource.Resource) (*resource.Resource, error) { return entry(Content(r) + "+"), nil }
		_, err := s.Store.Patch(key, edit)
		require.ErrorIs(t, err, memstore.ErrNotFound)
		s.put(t, entry("1"))
		version, err := s.Store.Patch(key, edit)
		require.NoError(t, err)
		s.requireVersion(t, entry("1+"), version)
		require.Equal(t, "1+", Content(s.Store.Get(key)))
	})

	each("A Patch that fails changes nothing", func(t *testing.T, s *subject) {
		s.put(t, entry("1"))
		refused := errors.New("refused")
		for name, edit := range map[string]func(*resource.Resource) (*resource.Resource, error){
			"an error":    func(*resource.Resource) (*resource.Resource, error) { return nil, refused },
			"no resource": func(*resource.Resource) (*resource.Resource, error) { return nil, nil },
			"another key": func(*resource.Resource) (*resource.Resource, error) { return New(key.Kind, "ns", "b", "2"), nil },
		} {
			_, err := s.Store.Patch(key, edit)
			require.ErrorContains(t, err, key.String(), name)
			require.Equal(t, []string{"ns/a=1"}, names(s.Store.List(key.Kind, "")), name)
		}
	})

	each("Concurrent patches lose nothing", func(t *testing.T, s *subject) {
		const workers, times = 4, 50
		s.put(t, entry("0"))
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				for range times {
					_, err := s.Store.Patch(key, func(r *resource.Resource) (*resource.Resource, error) {
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
		require.Equal(t, strconv.Itoa(workers*times), Content(s.Store.Get(key)))
	})

	each("Of concurrent creates one succeeds", func(t *testing.T, s *subject) {
		var wg sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			wg.Go(func() { _, errs[i] = s.Store.Create(entry(strconv.Itoa(i))) })
		}
		wg.Wait()
		winners := 0
		for i, err := range errs {
			if err == nil {
				winners++
				require.Equal(t, strconv.Itoa(i), Content(s.Store.Get(key)))
			} else {
				require.ErrorIs(t, err, memstore.ErrExists)
			}
		}
		require.Equal(t, 1, winners)
	})
}
