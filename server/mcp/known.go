package mcp

import (
	"tributary/memstore"
	"tributary/resource"
)

// Filters leave out revisions and namespaces that no object has, so that clients that make them up share one family. Before the first
// object with a new one is applied, all streams have to ask the catalog again, and those with that name in their filter get another
// family. The commit does not wait: a stream gets nothing new until it has asked.

// label is a revision or a namespace.
type label struct{ revision, namespace string }

// unknown replaces all revisions, or namespaces, that no object has. It is the name of none.
const unknown = "*"

// ReviewBy sets r, whose Review makes all streams ask the catalog again, without waiting for them. Call it before Run.
func (c *Catalog) ReviewBy(r interface{ Review() }) { c.reviewer = r }

// known returns a filter without the names that no object has.
func (c *Catalog) known(f filter) filter {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reviewer == nil || !c.synced {
		return f
	}
	known := filter{revision: f.revision, rights: f.rights}
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

// foresee counts the revisions and namespaces of snap, and makes streams ask again if some are new, before objects with these are served.
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
