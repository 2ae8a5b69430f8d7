package memstore

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/tidwall/btree"

	"tributary/internal/recent"
	"tributary/resource"
)

// Snapshot is an immutable, consistent state. The zero value is the empty state of revision 0. It is a small value,
// safe for concurrent use. It keeps its resources in memory.
type Snapshot struct {
	revision Revision
	times    recent.Log // of the latest revisions
	kinds    []kindTree // ordered by kind; neither the slice nor the trees change
	invalid  []resource.Key
}

// Revision is the commit that made this state.
func (s Snapshot) Revision() Revision { return s.revision }

// Invalid returns the keys of objects that are not here because they have no valid version, in order. Do not modify it.
// The content of these objects is unknown: clients that they may restrict are refused. In a view, another source may
// have a valid object of such a key.
func (s Snapshot) Invalid() []resource.Key { return s.invalid }

// Since returns the time of the first commit after a revision, or zero if it is no longer known. For a view of other
// stores it is the time of the first commit to one of those.
func (s Snapshot) Since(revision Revision) time.Time { return s.times.After(uint64(revision)) }

// Get returns the resource of key, or nil.
func (s Snapshot) Get(key resource.Key) *resource.Resource {
	tree := s.treeOf(key.Kind)
	if tree == nil {
		return nil
	}
	stored, _ := tree.Get(row{namespace: key.Namespace, name: key.Name})
	return stored.res
}

// List yields the resources of kind in namespace, or in all namespaces if it is empty, in key order.
func (s Snapshot) List(kind resource.Kind, namespace string) iter.Seq[*resource.Resource] {
	return func(yield func(*resource.Resource) bool) {
		tree := s.treeOf(kind)
		if tree == nil {
			return
		}
		if namespace == "" {
			tree.Scan(func(r row) bool { return yield(r.res) })
			return
		}
		tree.Ascend(row{namespace: namespace}, func(r row) bool { return r.namespace == namespace && yield(r.res) })
	}
}

// All yields every resource in key order.
func (s Snapshot) All() iter.Seq[*resource.Resource] {
	return func(yield func(*resource.Resource) bool) {
		continues := true
		for _, k := range s.kinds {
			k.tree.Scan(func(r row) bool {
				continues = yield(r.res)
				return continues
			})
			if !continues {
				return
			}
		}
	}
}

// Kinds returns the kinds that have resources, in order.
func (s Snapshot) Kinds() []resource.Kind {
	var kinds []resource.Kind
	for _, k := range s.kinds {
		if k.tree.Len() > 0 {
			kinds = append(kinds, k.kind)
		}
	}
	return kinds
}

// Len returns the number of resources.
func (s Snapshot) Len() int {
	n := 0
	for _, k := range s.kinds {
		n += k.tree.Len()
	}
	return n
}

// LenKind returns the number of resources of kind.
func (s Snapshot) LenKind(kind resource.Kind) int {
	if t := s.treeOf(kind); t != nil {
		return t.Len()
	}
	return 0
}

func (s Snapshot) treeOf(kind resource.Kind) *tree {
	if i, ok := findKind(s.kinds, kind); ok {
		return s.kinds[i].tree
	}
	return nil
}

// row is one resource in a tree. Its name is held inline: a comparison then follows no pointer, and a lookup needs no
// resource to compare with.
type row struct {
	namespace, name string
	res             *resource.Resource
}

func rowOf(r *resource.Resource) row {
	key := r.Key()
	return row{namespace: key.Namespace, name: key.Name, res: r}
}

func (r row) isBefore(next row) bool {
	if r.namespace != next.namespace {
		return r.namespace < next.namespace
	}
	return r.name < next.name
}

// tree has the resources of one kind in order of namespace and name. A copy of it costs O(1), and a later change copies
// the nodes on its path. Of 100,000 objects, a radix tree took six times the memory and twenty times as long to
// iterate, and pages of a sorted slice copied four times as much for each change.
type tree = btree.BTreeG[row]

// newTree returns an empty tree without locks: a published tree is only read. A larger degree makes copies of nodes
// dearer and lookups cheaper.
func newTree() *tree {
	return btree.NewBTreeGOptions(row.isBefore, btree.Options{NoLocks: true, Degree: 16})
}

// packed returns a tree of the same rows with every other row set first, then those in between. So the nodes are full;
// those of rows set in order, as the first ones of a kind are, stay half empty.
func packed(tree *tree) *tree {
	full := newTree()
	for odd := range 2 {
		i := odd
		tree.Scan(func(r row) bool {
			if i++; i%2 == 1 {
				full.Set(r)
			}
			return true
		})
	}
	return full
}

// kindTree is the tree of one kind.
type kindTree struct {
	kind resource.Kind
	tree *tree
}

// findKind returns the index of kind, or its place, among trees that are ordered by kind.
func findKind(trees []kindTree, kind resource.Kind) (int, bool) {
	return slices.BinarySearchFunc(trees, kind,
		func(t kindTree, kind resource.Kind) int { return cmp.Compare(t.kind, kind) })
}
