package consulkv

import (
	"testing"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/memstore/storetest"
	"tributary/resource"
	"tributary/sources/consul/judge"
)

// mirrored is a mirror of keys that hold one gateway each, called "a" unless the key says otherwise.
type mirrored struct {
	*mirror
	t *testing.T
}

func newMirrored(t *testing.T) mirrored { return mirrored{newMirror(new(memstore.Table)), t} }

var gatewayA = resource.Key{Kind: resource.Gateway, Namespace: "ns", Name: "a"}

func holding(index uint64, content string) entry {
	return entry{index: index, objects: map[resource.Key]*resource.Resource{gatewayA: storetest.New(resource.Gateway, "ns", "a", content)}}
}

// lists takes a listing of keys, with their index and content.
func (m mirrored) lists(index uint64, reset bool, pairs ...*api.KVPair) {
	m.take(listing{Answer: judge.Answer{Index: index}, pairs: pairs, reset: reset},
		func(p *api.KVPair) entry { return holding(p.ModifyIndex, string(p.Value)) })
}

func pair(key string, index uint64, content string) *api.KVPair {
	return &api.KVPair{Key: key, ModifyIndex: index, Value: []byte(content)}
}

func (m mirrored) requireContent(want string) {
	m.t.Helper()
	require.Equal(m.t, want, storetest.Content(m.table.Snapshot().Get(gatewayA)))
}

func TestMirror_KeepsValuesNewerThanListing(t *testing.T) {
	m := newMirrored(t)
	m.lists(5, false, pair("k", 5, "old"))
	m.note("k", holding(8, "written"))
	m.lists(6, false, pair("k", 5, "old")) // made before the write, and arrives after it
	m.requireContent("written")
	m.lists(8, false, pair("k", 8, "written"))
	m.noteDeleted("k", 8)
	m.requireContent("")
	m.lists(8, false, pair("k", 8, "written")) // made before the deletion
	m.requireContent("")
	m.note("k", holding(8, "written")) // read before the deletion
	m.requireContent("")
	m.lists(11, false, pair("k", 10, "again"))
	m.requireContent("again")
}

func TestMirror_KeepsValuesThatListingIsTooOldToHave(t *testing.T) {
	m := newMirrored(t)
	m.lists(5, false)
	m.note("k", holding(8, "written"))
	m.lists(7, false)
	m.requireContent("written")
	m.noteAbsent("k", 7) // a read that was slower than the write
	m.requireContent("written")
	m.lists(9, false) // another client deleted it
	m.requireContent("")
	m.lists(7, false, pair("k", 7, "overtaken"))
	m.requireContent("")
}

func TestMirrorBelievesAReset(t *testing.T) {
	m := newMirrored(t)
	m.lists(50, false, pair("k", 50, "old"))
	m.noteDeleted("k", 50)
	m.lists(3, true, pair("k", 3, "new"))
	m.requireContent("new")
	m.note("k", holding(4, "newer"))
	m.requireContent("newer")
	m.lists(2, true)
	m.requireContent("")
}

func TestMirrorTakesTheFirstKey(t *testing.T) {
	m := newMirrored(t)
	m.lists(3, false, pair("b", 2, "second"), pair("c", 3, "third"))
	m.requireContent("second")
	require.Equal(t, "b", m.home(gatewayA))
	m.note("a", holding(4, "first"))
	m.requireContent("first")
	m.noteDeleted("a", 4)
	m.noteDeleted("b", 2)
	m.requireContent("third")
	require.Equal(t, "c", m.home(gatewayA))
	m.noteAbsent("c", 9)
	require.Empty(t, m.home(gatewayA))
	require.Empty(t, m.holders)
	require.Empty(t, m.entries)
}
