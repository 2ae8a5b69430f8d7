package storetest

import (
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/resource"
)

func testReader(each func(string, func(*testing.T, *subject))) {
	each("A snapshot does not change", func(t *testing.T, s *subject) {
		s.put(t, entry("1"))
		before := s.Reader.Snapshot()
		s.put(t, entry("2"), New(resource.Gateway, "ns", "b", "3"))
		after := s.Reader.Snapshot()
		s.remove(t, key)

		require.Equal(t, []string{"ns/a=1"}, names(slices.Collect(before.All())))
		require.Equal(t, []string{"ns/b=3", "ns/a=2"}, names(slices.Collect(after.All())))
		require.Equal(t, []resource.Kind{resource.Gateway, resource.ServiceEntry}, after.Kinds())
		require.Equal(t, 2, after.Len())
		require.Equal(t, 1, after.LenKind(resource.Gateway))
		require.Equal(t, []string{"ns/b=3"}, names(slices.Collect(s.Reader.Snapshot().All())))
		require.Less(t, before.Revision(), after.Revision())
	})

	each("Changes names each key once", func(t *testing.T, s *subject) {
		s.put(t, entry("1"))
		since := s.Reader.Snapshot().Revision()
		s.put(t, entry("2"))
		s.put(t, entry("3"))
		s.put(t, New(resource.Gateway, "ns", "b", "4"))
		s.remove(t, New(resource.Gateway, "ns", "b", "").Key())

		keys, now, ok := s.Reader.Changes(since)
		require.True(t, ok)
		require.ElementsMatch(t, []resource.Key{key, New(resource.Gateway, "ns", "b", "").Key()}, keys)
		require.Equal(t, "3", Content(now.Get(key)))

		keys, _, ok = s.Reader.Changes(now.Revision())
		require.True(t, ok)
		require.Empty(t, keys)
	})

	each("Changes knows what it cannot tell", func(t *testing.T, s *subject) {
		s.put(t, entry("1"))
		future := s.Reader.Snapshot().Revision() + 1000
		keys, now, ok := s.Reader.Changes(future)
		require.False(t, ok, "a revision of some other store")
		require.Empty(t, keys)
		require.Equal(t, "1", Content(now.Get(key)))
	})

	each("What changes nothing is no commit", func(t *testing.T, s *subject) {
		s.put(t, entry("1"))
		before := s.Reader.Snapshot().Revision()
		s.put(t, entry("1"))
		require.Equal(t, before, s.Reader.Snapshot().Revision())
	})

	each("Changed wakes a follower", func(t *testing.T, s *subject) {
		changed := s.Reader.Changed()
		select {
		case <-changed:
			t.Fatal("woken by nothing")
		default:
		}
		s.put(t, entry("1"))
		<-changed
	})

	each("Synced wakes a follower", func(t *testing.T, s *subject) {
		if s.MarkSynced == nil {
			t.Skip("the store syncs by itself")
		}
		require.False(t, s.Reader.Synced())
		changed := s.Reader.Changed()
		s.MarkSynced()
		<-changed
		Eventually(t, s.Reader.Synced, "Synced")
	})

	each("A follower misses nothing", func(t *testing.T, s *subject) {
		const last = 300
		since := s.Reader.Snapshot().Revision() // of the empty store, whenever the follower starts
		done := make(chan map[string]string)
		go func() {
			mirror := make(map[string]string)
			defer func() { done <- mirror }()
			for mirror["ns/"+strconv.Itoa(last)] == "" {
				changed := s.Reader.Changed()
				keys, now, ok := s.Reader.Changes(since)
				if !ok {
					t.Error("too old")
					return
				}
				since = now.Revision()
				for _, k := range keys {
					if r := now.Get(k); r != nil {
						mirror[k.FullName()] = Content(r)
					} else {
						delete(mirror, k.FullName())
					}
				}
				if len(keys) == 0 {
					<-changed
				}
			}
		}()
		for i := 1; i <= last; i++ {
			s.put(t, New(resource.Gateway, "ns", strconv.Itoa(i), "x"))
			if i > 10 {
				s.remove(t, New(resource.Gateway, "ns", strconv.Itoa(i-10), "").Key())
			}
		}
		mirror := <-done
		want := make(map[string]string)
		for i := last - 9; i <= last; i++ {
			want["ns/"+strconv.Itoa(i)] = "x"
		}
		delete(mirror, "ns/"+strconv.Itoa(last-10)) // deleted after the last put, which may be when the follower stopped
		require.Equal(t, want, mirror)
	})
}
