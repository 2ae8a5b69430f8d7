package memstore

import (
	"slices"

	"tributary/resource"
)

// draft is the next state of a table in the making. Its trees are never published, only copies of them, which cost O(1):
// a published tree is thus never touched again. Between commits the trees have the content of the snapshot.
type draft struct {
	trees []kindTree // ordered by kind

	// Of the commit in the making.
	base    Snapshot
	changes []Change
	index   map[resource.Key]int // where changes has a key; nil if only one key can change
}

// begin starts a commit of at most size changes on top of base.
func (d *draft) begin(base Snapshot, size int) {
	d.base, d.changes, d.index = base, nil, nil
	if size > 1 {
		d.index = make(map[resource.Key]int, size)
	}
}

func (d *draft) put(r *resource.Resource) {
	key := r.Key()
	old := d.base.Get(key)
	if old != nil && r.Seen().IsZero() && !old.Seen().IsZero() {
		r = r.WithSeen(old.Seen())
	}
	if equalStored(old, r) {
		if _, changed := d.index[key]; !changed {
			return
		}
		r = old
	}
	d.treeOf(key.Kind).Set(rowOf(r))
	d.record(key, Change{Old: old, New: r})
}

func (d *draft) delete(key resource.Key) {
	old := d.base.Get(key)
	if old == nil {
		return
	}
	d.treeOf(key.Kind).Delete(row{namespace: key.Namespace, name: key.Name})
	d.record(key, Change{Old: old})
}

// end returns the net changes, without those that cancelled out, and the trees to publish.
func (d *draft) end() ([]Change, []kindTree) {
	changes := slices.DeleteFunc(d.changes, func(c Change) bool { return c.Old == c.New })
	kinds := slices.Clone(d.base.kinds)
	for _, c := range changes {
		kind := c.Key().Kind
		i, ok := findKind(kinds, kind)
		switch {
		case !ok:
			kinds = slices.Insert(kinds, i, kindTree{kind, d.treeOf(kind).Copy()})
		case kinds[i].tree == d.base.treeOf(kind): // not yet copied for an earlier change
			kinds[i].tree = d.treeOf(kind).Copy()
		}
	}
	d.base, d.changes, d.index = Snapshot{}, nil, nil // hold nothing until the next commit
	return changes, kinds
}

func (d *draft) treeOf(kind resource.Kind) *tree {
	i, ok := findKind(d.trees, kind)
	if !ok {
		d.trees = slices.Insert(d.trees, i, kindTree{kind, newTree()})
	}
	return d.trees[i].tree
}

// record notes what became of key in this commit, over what was noted before.
func (d *draft) record(key resource.Key, c Change) {
	if i, ok := d.index[key]; ok {
		d.changes[i] = c
		return
	}
	if d.index != nil {
		d.index[key] = len(d.changes)
	}
	d.changes = append(d.changes, c)
}

// equalStored reports whether two resources do not differ in anything that is stored.
func equalStored(a, b *resource.Resource) bool {
	return a == b || a != nil && b != nil &&
		resource.Equal(a, b) && resource.SameOrigin(a, b) && a.Seen().Equal(b.Seen())
}
