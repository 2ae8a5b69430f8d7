package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/resource"
)

func testRead(each func(string, func(*testing.T, *subject))) {
	each("Schemas", func(t *testing.T, s *subject) {
		require.NotEmpty(t, s.Store.Schemas())
	})

	each("Get finds a key, and only that", func(t *testing.T, subject *subject) {
		a, b := New(resource.ServiceEntry, "ns", "a", "1"), New(resource.VirtualService, "ns", "a", "2")
		subject.put(t, a, b)
		require.True(t, equal(subject.Store.Get(a.Key()), a))
		require.True(t, equal(subject.Store.Get(b.Key()), b))
		require.Nil(t, subject.Store.Get(resource.Key{Kind: resource.ServiceEntry, Namespace: "ns", Name: "b"}))
		require.Nil(t, subject.Store.Get(resource.Key{Kind: resource.ServiceEntry, Namespace: "other", Name: "a"}))
		require.Nil(t, subject.Store.Get(resource.Key{Kind: resource.Gateway, Namespace: "ns", Name: "a"}))
	})

	each("Keys do not run together", func(t *testing.T, s *subject) {
		s.put(t, New(resource.Gateway, "ab", "c", "1"), New(resource.Gateway, "a", "bc", "2"))
		require.Equal(t, []string{"a/bc=2", "ab/c=1"}, names(s.Store.List(resource.Gateway, "")))
	})

	each("List is of one kind, of a namespace or all, in key order", func(t *testing.T, subject *subject) {
		subject.put(t,
			New(resource.Sidecar, "b", "z", "1"), New(resource.Sidecar, "b", "a", "2"), New(resource.Sidecar, "a", "m", "3"),
			New(resource.Sidecar, "ba", "a", "4"), New(resource.Telemetry, "b", "b", "5"))
		require.Equal(t, []string{"a/m=3", "b/a=2", "b/z=1", "ba/a=4"}, names(subject.Store.List(resource.Sidecar, "")))
		require.Equal(t, []string{"b/a=2", "b/z=1"}, names(subject.Store.List(resource.Sidecar, "b")))
		require.Empty(t, subject.Store.List(resource.Sidecar, "c"))
		require.Empty(t, subject.Store.List(resource.Gateway, ""))
	})

	each("A list does not change after it was returned", func(t *testing.T, subject *subject) {
		a := New(resource.Sidecar, "ns", "a", "1")
		subject.put(t, a)
		list := subject.Store.List(resource.Sidecar, "")
		subject.put(t, New(resource.Sidecar, "ns", "a", "2"), New(resource.Sidecar, "ns", "b", "3"))
		require.Equal(t, []string{"ns/a=1"}, names(list))
	})

	each("A cluster-scoped kind has no namespace", func(t *testing.T, subject *subject) {
		mesh := New(resource.MeshConfig, "", "default", "1")
		subject.put(t, mesh)
		require.Equal(t, []string{"default=1"}, names(subject.Store.List(resource.MeshConfig, "")))
	})
}

func names(rs []*resource.Resource) (names []string) {
	for _, r := range rs {
		names = append(names, r.Key().FullName()+"="+Content(r))
	}
	return names
}
