package mcp

import (
	"tributary/memstore"
	"tributary/resource"
)

// Revisions and namespaces that no object has are left out of filters, so that clients that make them up share one family. Before the
// first object comes that has one, all streams are told to ask the catalog once more, and those whose filter names it are led to a
// family of their own. The commit does not wait for that: a stream is sent nothing new until it has asked.

// label is a revision or a namespace.
type label struct{ revision, namespace string }

// unknown stands for all revisions, or namespaces, that no object has. It is the name of none.
const unknown = "*"

// ReviewBy makes r the one who has all streams ask the catalog once more, and does not wait for them. It is called before Run.
func (c *Catalog) ReviewBy(r interface{ Review() }) { c.reviewer = r }

// known returns what is left of a filter by what objects there are.
func (c *Catalog) known(f filter) filter {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reviewer == nil || !c.synced {
		return f
	}
	known := filter{revision: f.revision, allowed: f.allowed}
	if f.revision != "" && c.names[label{revision: f.revision}] == 0 {
		known.revision = unknown
	}
	for _, ns := range f.namespaces {
		if c.names[label{namespace: ns}] > 0 {
			known.namespaces = append(known.namespaces, ns)
		}
	}
	c.reduced = c.reduced || known.revision != f.revision || len(known.namespaces) < len(f.namespaces)
	if len(known.namespaces) == 0 && len(f.namespaces) > 0 {
		known.namespaces = []string{unknown}
	}
	return known
}

// foresee counts the revisions and namespaces of snap, and has streams ask once more if some are new: they are told before the objects
// that have them are served.
func (c *Catalog) foresee(keys []resource.Key, snap memstore.Snapshot, incremental bool) {
	if c.count(keys, snap, incremental) && c.reviewer != nil {
		c.reviewer.Review()
	}
}

// count reports whether clients may have asked for what is new.
func (c *Catalog) count(keys []resource.Key, snap memstore.Snapshot, incremental bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	grown, last := false, c.snap
	add := func(r *resource.Resource, n int) {
		if r == nil {
			return
		}
		for _, of := range []label{{revision: r.Labels()[revisionLabel]}, {namespace: r.Key().Namespace}} {
			if c.names[of] == 0 {
				grown = true
			}
			if c.names[of] += n; c.names[of] == 0 {
				delete(c.names, of)
			}
		}
	}
	if !incremental {
		was := c.names
		c.names = make(map[label]int)
		for r := range snap.All() {
			add(r, 1)
		}
		grown = false
		for of := range c.names {
			grown = grown || was[of] == 0
		}
	}
	for _, key := range keys {
		if incremental {
			add(snap.Get(key), 1)
			add(last.Get(key), -1)
		}
	}
	review := grown && c.reduced
	c.reduced = c.reduced && !review
	return review
}
