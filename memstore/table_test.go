package memstore

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/resource"
)

func gateway(name, content string) *resource.Resource {
	return resource.FromBody(resource.Meta{
		Key:    resource.Key{Kind: resource.Gateway, Namespace: "ns", Name: name},
		Labels: map[string]string{"content": content},
	}, nil)
}

func TestApplyReturnsNetChanges(t *testing.T) {
	a1, a2, b, c := gateway("a", "1"), gateway("a", "2"), gateway("b", "1"), gateway("c", "1")
	absent := gateway("absent", "").Key()
	for _, test := range []struct {
		name    string
		before  []*resource.Resource
		puts    []*resource.Resource
		deletes []resource.Key
		want    []Change
	}{
		{name: "no change"},
		{name: "add", puts: []*resource.Resource{a1}, want: []Change{{nil, a1}}},
		{name: "update", before: []*resource.Resource{a1}, puts: []*resource.Resource{a2}, want: []Change{{a1, a2}}},
		{name: "equal", before: []*resource.Resource{a1}, puts: []*resource.Resource{gateway("a", "1")}},
		{name: "delete", before: []*resource.Resource{a1}, deletes: []resource.Key{a1.Key()}, want: []Change{{a1, nil}}},
		{name: "delete a missing resource", deletes: []resource.Key{absent}},
		{name: "delete twice", before: []*resource.Resource{a1}, deletes: []resource.Key{a1.Key(), a1.Key()}, want: []Change{{a1, nil}}},
		{name: "the last put of a key counts", puts: []*resource.Resource{a1, b, a2}, want: []Change{{nil, a2}, {nil, b}}},
		{name: "a change and its reversal cause no event", before: []*resource.Resource{a1}, puts: []*resource.Resource{a2, a1}},
		{
			name: "delete comes before put", before: []*resource.Resource{a1}, deletes: []resource.Key{a1.Key()}, puts: []*resource.Resource{a2},
			want: []Change{{a1, a2}},
		},
		{
			name: "deleted and put as it was", before: []*resource.Resource{a1, b}, deletes: []resource.Key{a1.Key()},
			puts: []*resource.Resource{a1, c}, want: []Change{{nil, c}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var table Table
			_, before := table.Apply(test.before, nil)
			changes, now := table.Apply(test.puts, test.deletes)
			require.ElementsMatch(t, test.want, changes)
			wantRevision := before.Revision()
			if len(test.want) > 0 {
				wantRevision++
			}
			require.Equal(t, wantRevision, now.Revision())
			require.ElementsMatch(t, slices.Collect(Diff(before, now)), changes)
		})
	}
}

func TestOrigin_StoredWithoutEvent(t *testing.T) {
	var table Table
	a := gateway("a", "1").WithOrigin(resource.Origin{Source: "files", Place: "a.yaml:1"})
	_, before := table.Apply([]*resource.Resource{a}, nil)
	moved := a.WithOrigin(resource.Origin{Source: "files", Place: "a.yaml:9"})
	changes, now := table.Apply([]*resource.Resource{moved}, nil)

	require.Equal(t, []Change{{a, moved}}, changes)
	require.True(t, resource.Equal(changes[0].Old, changes[0].New))
	require.Equal(t, before.Revision()+1, now.Revision(), "mirrors follow revisions")
	require.Equal(t, "files: a.yaml:9", now.Get(a.Key()).Origin().String())
}

func TestFirstSeen_Preserved(t *testing.T) {
	var table Table
	first := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	table.Apply([]*resource.Resource{gateway("a", "1").WithSeen(first)}, nil)
	_, now := table.Apply([]*resource.Resource{gateway("a", "2")}, nil)
	require.Equal(t, first, now.Get(gateway("a", "").Key()).Seen())

	revision := now.Revision()
	_, now = table.Apply([]*resource.Resource{gateway("a", "2")}, nil)
	require.Equal(t, revision, now.Revision(), "not telling a time is no change")
}

func TestCompareAndSwap_RequiresSamePointer(t *testing.T) {
	var table Table
	a := gateway("a", "1")
	require.False(t, table.CompareAndSwap(a.Key(), a, gateway("a", "2")))
	require.True(t, table.CompareAndSwap(a.Key(), nil, a))
	require.False(t, table.CompareAndSwap(a.Key(), nil, a))
	require.False(t, table.CompareAndSwap(a.Key(), gateway("a", "1"), gateway("a", "2")), "equal is not the same")
	require.True(t, table.CompareAndSwap(a.Key(), a, nil))
	require.True(t, table.CompareAndSwap(a.Key(), nil, nil))
	require.Zero(t, table.Snapshot().Len())
}

func TestZeroTable_Empty(t *testing.T) {
	var table Table
	keys, now, ok := table.Changes(0)
	require.True(t, ok)
	require.Empty(t, keys)
	require.Zero(t, now.Revision())
	require.Zero(t, now.Len())
	require.Empty(t, slices.Collect(now.All()))
	require.Empty(t, now.Kinds())
}

func TestLog_Bounded(t *testing.T) {
	var table Table
	for i := range 3 * minLog {
		table.Apply([]*resource.Resource{gateway(strconv.Itoa(i%(2*minLog)), strconv.Itoa(i))}, nil)
		require.LessOrEqual(t, len(table.load().log.entries), minLog)
	}
	_, _, ok := table.Changes(0)
	require.False(t, ok, "too old")
	keys, _, ok := table.Changes(table.Snapshot().Revision() - minLog/4)
	require.True(t, ok)
	require.Len(t, keys, minLog/4)
}

func TestBusyKey_DoesNotEvictOtherKeys(t *testing.T) {
	var table Table
	table.Apply([]*resource.Resource{gateway("quiet", "1")}, nil)
	for i := range 5 * minLog {
		table.Apply([]*resource.Resource{gateway("busy", strconv.Itoa(i))}, nil)
	}
	keys, _, ok := table.Changes(0)
	require.True(t, ok)
	require.ElementsMatch(t, []resource.Key{gateway("quiet", "").Key(), gateway("busy", "").Key()}, keys)
}

func TestHugeCommit_NotLogged(t *testing.T) {
	var table Table
	_, before := table.Apply([]*resource.Resource{gateway("a", "1")}, nil)
	var resources []*resource.Resource
	for i := range 2 * minLog {
		resources = append(resources, gateway(strconv.Itoa(i), "1"))
	}
	_, now := table.Apply(resources, nil)
	_, _, ok := table.Changes(before.Revision())
	require.False(t, ok)
	keys, _, ok := table.Changes(now.Revision())
	require.True(t, ok, "a reader of the state after it can go on")
	require.Empty(t, keys)
}

// TestCommitCostsLittle holds the promise that a commit costs O(log n): a hundred times the resources must not cost
// more than twice the memory.
func TestCommitCostsLittle(t *testing.T) {
	bytesPerCommit := func(size int) uint64 {
		table := tableOf(size)
		const commits = 200
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for i := range commits {
			table.Apply([]*resource.Resource{gateway(fmt.Sprintf("%06d", i), "new")}, nil)
		}
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / commits
	}
	small, large := bytesPerCommit(500), bytesPerCommit(50_000)
	require.Less(t, large, 2*small)
}

func tableOf(size int) *Table {
	resources := make([]*resource.Resource, size)
	for i := range resources {
		resources[i] = gateway(fmt.Sprintf("%06d", i), "old")
	}
	table := new(Table)
	table.Apply(resources, nil)
	return table
}

func TestFirstCommitFillsTheNodes(t *testing.T) {
	const size = 10_000
	leaves := 0
	tableOf(size).Snapshot().treeOf(resource.Gateway).Walk(func(rows []row) bool {
		if len(rows) > 1 { // else it is a row between leaves
			leaves++
		}
		return true
	})
	require.Less(t, leaves, size/25, "with up to 31 rows each")
}

func TestTable_SetInvalid(t *testing.T) {
	var table Table
	key, b := gateway("a", "").Key(), gateway("b", "").Key()
	changed := table.Changed()
	table.SetInvalid([]resource.Key{b, key, b})
	<-changed
	require.Equal(t, []resource.Key{key, b}, table.Snapshot().Invalid())
	revision := table.Snapshot().Revision()
	table.SetInvalid([]resource.Key{key, b})
	require.Equal(t, revision, table.Snapshot().Revision(), "no difference, no commit")
	table.Apply(nil, []resource.Key{key})
	require.Equal(t, []resource.Key{key, b}, table.Snapshot().Invalid(), "Apply does not change it")
	table.SetInvalid(nil)
	keys, now, ok := table.Changes(revision)
	require.True(t, ok)
	require.Empty(t, keys)
	require.Empty(t, now.Invalid())
	require.Greater(t, now.Revision(), revision)
}
