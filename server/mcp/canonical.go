package mcp

import (
	"tributary/memstore"
	"tributary/resource"
)

// attribute is a revision or a namespace of objects.
type attribute struct{ revision, namespace string }

// absent replaces each revision or namespace without objects. No object can have it.
const absent = "*"

// ReviewBy sets the engine. Its Review makes its streams ask the catalog again, and does not wait. Call it before Run.
func (c *Catalog) ReviewBy(engine interface{ Review() }) { c.engine = engine }

// canonical returns the filter without the revisions and namespaces that have no objects, so that clients that make up
// names share a family.
func (c *Catalog) canonical(requested filter) filter {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.engine == nil || !c.synced {
		return requested
	}
	reduced := filter{revision: requested.revision, rights: requested.rights}
	if requested.revision != "" && c.attributes[attribute{revision: requested.revision}] == 0 {
		reduced.revision = absent
	}
	for _, namespace := range requested.namespaces {
		if c.attributes[attribute{namespace: namespace}] > 0 {
			reduced.namespaces = append(reduced.namespaces, namespace)
		}
	}
	c.reduced = c.reduced || reduced.revision != requested.revision || len(reduced.namespaces) < len(requested.namespaces)
	if len(reduced.namespaces) == 0 && len(requested.namespaces) > 0 {
		reduced.namespaces = []string{absent}
	}
	return reduced
}

// review makes streams ask again before objects with new revisions or namespaces are served, if filters were reduced.
func (c *Catalog) review(keys []resource.Key, snap memstore.Snapshot, incremental bool) {
	if c.countAttributes(keys, snap, incremental) && c.engine != nil {
		c.engine.Review()
	}
}

// countAttributes counts the objects of each attribute, and reports whether a reduced filter may have a new attribute.
func (c *Catalog) countAttributes(keys []resource.Key, snap memstore.Snapshot, incremental bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	added := false
	count := func(object *resource.Resource, difference int) {
		if object == nil {
			return
		}
		for _, property := range []attribute{
			{revision: object.Labels()[resource.RevisionLabel]},
			{namespace: object.Key().Namespace},
		} {
			added = added || c.attributes[property] == 0
			if c.attributes[property] += difference; c.attributes[property] == 0 {
				delete(c.attributes, property)
			}
		}
	}
	if incremental {
		for _, key := range keys {
			count(snap.Get(key), 1)
			count(c.snap.Get(key), -1)
		}
	} else {
		for object := range snap.All() {
			count(object, 1)
		}
		for object := range c.snap.All() {
			count(object, -1)
		}
	}
	review := added && c.reduced
	c.reduced = c.reduced && !review
	return review
}
