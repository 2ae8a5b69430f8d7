package storetest

import (
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/resource"
)

func testReader(each func(string, func(*testing.T, *subject))) {
	each("A snapshot does not change", func(t *testing.T, subject *subject) {
		subject.put(t, entry("1"))
		before := subject.Reader.Snapshot()
		subject.put(t, entry("2"), New(resource.Gateway, "ns", "b", "3"))
		after := subject.Reader.Snapshot()
		subject.remove(t, key)

		require.Equal(t, []string{"ns/a=1"}, names(slices.Collect(before.All())))
		require.Equal(t, []string{"ns/b=3", "ns/a=2"}, names(slices.Collect(after.All())))
		require.Equal(t, []resource.Kind{resource.Gateway, resource.ServiceEntry}, after.Kinds())
		require.Equal(t, 2, after.Len())
		require.Equal(t, 1, after.LenKind(resource.Gateway))
		require.Equal(t, []string{"ns/b=3"}, names(slices.Collect(subject.Reader.Snapshot().All())))
		require.Less(t, before.Revision(), after.Revision())
	})

	each("Changes names each key once", func(t *testing.T, subject *subject) {
		subject.put(t, entry("1"))
		revision := subject.Reader.Snapshot().Revision()
		subject.put(t, entry("2"))
		subject.put(t, entry("3"))
		subject.put(t, New(resource.Gateway, "ns", "b", "4"))
		subject.remove(t, New(resource.Gateway, "ns", "b", "").Key())

		keys, now, ok := subject.Reader.Changes(revision)
		require.True(t, ok)
		require.ElementsMatch(t, []resource.Key{key, New(resource.Gateway, "ns", "b", "").Key()}, keys)
		require.Equal(t, "3", Content(now.Get(key)))

		keys, _, ok = subject.Reader.Changes(now.Revision())
		require.True(t, ok)
		require.Empty(t, keys)
	})

	each("Changes knows what it cannot tell", func(t *testing.T, subject *subject) {
		subject.put(t, entry("1"))
		future := subject.Reader.Snapshot().Revision() + 1000
		keys, now, ok := subject.Reader.Changes(future)
		require.False(t, ok, "a revision of some other store")
		require.Empty(t, keys)
		require.Equal(t, "1", Content(now.Get(key)))
	})

	each("What changes nothing is no commit", func(t *testing.T, subject *subject) {
		subject.put(t, entry("1"))
		before := subject.Reader.Snapshot().Revision()
		subject.put(t, entry("1"))
		require.Equal(t, before, subject.Reader.Snapshot().Revision())
	})

	each("Changed wakes a follower", func(t *testing.T, subject *subject) {
		changed := subject.Reader.Changed()
		select {
		case <-changed:
			t.Fatal("woken by nothing")
		default:
		}
		subject.put(t, entry("1"))
		<-changed
	})

	each("Synced wakes a follower", func(t *testing.T, subject *subject) {
		if subject.MarkSynced == nil {
			t.Skip("the store syncs by itself")
		}
		require.False(t, subject.Reader.Synced())
		changed := subject.Reader.Changed()
		subject.MarkSynced()
		<-changed
		Eventually(t, subject.Reader.Synced, "Synced")
	})

	each("A follower misses nothing", func(t *testing.T, subject *subject) {
		const last = 300
		revision := subject.Reader.Snapshot().Revision() // of the empty store, whenever the follower starts
		done := make(chan map[string]string)
		go func() {
			mirror := make(map[string]string)
			defer func() { done <- mirror }()
			for mirror["ns/"+strconv.Itoa(last)] == "" {
				changed := subject.Reader.Changed()
				keys, now, ok := subject.Reader.Changes(revision)
				if !ok {
					t.Error("too old")
					return
				}
				revision = now.Revision()
				for _, changedKey := range keys {
					if r := now.Get(changedKey); r != nil {
						mirror[changedKey.FullName()] = Content(r)
					} else {
						delete(mirror, changedKey.FullName())
					}
				}
				if len(keys) == 0 {
					<-changed
				}
			}
		}()
		for i := 1; i <= last; i++ {
			subject.put(t, New(resource.Gateway, "ns", strconv.Itoa(i), "x"))
			if i > 10 {
				subject.remove(t, New(resource.Gateway, "ns", strconv.Itoa(i-10), "").Key())
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
