package memstore

import (
	"strings"

	"github.com/tidwall/btree"

	"tributary/resource"
)

// row is one resource in a tree. The name is held inline because a comparison that follows a pointer costs a cache miss.
type row struct {
	namespace, name string
	res             *resource.Resource
}

func rowOf(r *resource.Resource) row {
	key := r.Key()
	return row{namespace: key.Namespace, name: key.Name, res: r}
}

func (a row) less(b row) bool {
	if c := strings.Compare(a.namespace, b.namespace); c != 0 {
		return c < 0
	}
	return a.name < b.name
}

// tree holds the resources of one kind in order of namespace and name. Copying it costs O(1); a change of the copy then
// copies only the nodes on its path. It has no locks: a tree that was published is read by all and written by none.
type tree = btree.BTreeG[row]

func newTree() *tree {
	return btree.NewBTreeGOptions(row.less, btree.Options{NoLocks: true})
}

// kindTree is the tree of one kind.
type kindTree struct {
	kind resource.Kind
	tree *tree
}
