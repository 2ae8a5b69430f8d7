package memstore

import (
	"iter"
	"time"

	"tributary/internal/recent"
	"tributary/resource"
)

// Snapshot is an immutable, consistent state. The zero value is the empty state of revision 0. It is a small value,
// safe for concurrent use; it keeps the resources of its moment alive for as long as it is held.
type Snapshot struct {
	revision Revision
	times    recent.Log // of the latest revisions
	kinds    []kindTree // ordered by kind; neither the slice nor the trees change
}

// Revision is the commit that made this state.
func (s Snapshot) Revision() Revision { return s.revision }

// Since returns when the first of the commits after a revision came about, or zero if that is not known any more. For what is made
// of other stores it is the time of the first commit to one of those.
func (s Snapshot) Since(since Revision) time.Time { return s.times.After(uint64(since)) }

// Get returns the resource of key, or nil.
func (s Snapshot) Get(key resource.Key) *resource.Resource {
	t := s.treeOf(key.Kind)
	if t == nil {
		return nil
	}
	found, _ := t.Get(row{namespace: key.Namespace, name: key.Name})
	return found.res
}

// List yields the resources of kind in namespace, or in all namespaces if it is empty, in key order.
func (s Snapshot) List(kind resource.Kind, namespace string) iter.Seq[*resource.Resource] {
	return func(yield func(*resource.Resource) bool) {
		t := s.treeOf(kind)
		if t == nil {
			return
		}
		if namespace == "" {
			t.Scan(func(r row) bool { return yield(r.res) })
			return
		}
		t.Ascend(row{namespace: namespace}, func(r row) bool { return r.namespace == namespace && yield(r.res) })
	}
}

// All yields every resource in key order.
func (s Snapshot) All() iter.Seq[*resource.Resource] {
	return func(yield func(*resource.Resource) bool) {
		more := true
		for _, k := range s.kinds {
			k.tree.Scan(func(r row) bool {
				more = yield(r.res)
				return more
			})
			if !more {
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
