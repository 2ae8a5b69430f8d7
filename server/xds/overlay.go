package xds

import (
	"cmp"
	"slices"
)

// Overlay adds a collection to the group that has the entries of base, which is of the group and no overlay, and entries of its own, which
// replace those of the same name and to which commits apply. It is synced as base is. Call Flush after the first commit, before a stream
// has the collection.
func (g *Group) Overlay(base *Collection) *Collection {
	c := &Collection{typ: base.typ, group: g, base: base, own: nothing, wakeups: make(map[wakeup]int)}
	g.commits.Lock()
	defer g.commits.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	c.current.Store(base.current.Load().detached())
	c.shown.Store(c.current.Load())
	c.synced.Store(base.Synced())
	put(&base.overlays, c, struct{}{})
	g.hidden[c] = struct{}{}
	return c
}

// Drop removes an overlay that nobody uses any more from the group.
func (g *Group) Drop(c *Collection) {
	g.commits.Lock()
	defer g.commits.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(c.base.overlays, c)
	c.synced.Store(false)
	g.hidden[c] = struct{}{} // so that the next cut does not have it
}

// overlay adds to the next states of collections those of the overlays that change with them; g.commits is held.
func (g *Group) overlay(next map[*Collection]*state, commits map[*Collection]*Commit) {
	changed := make(map[*Collection]bool)
	for c, s := range next {
		if c.base != nil {
			c.own, changed[c] = s, true
		}
		for o := range c.overlays {
			changed[o] = true
		}
	}
	for c := range changed {
		base, old, commit := cmp.Or(next[c.base], c.base.current.Load()), c.current.Load(), *cmp.Or(commits[c.base], commits[c])
		puts, removed := compare(old, base.withPuts(slices.Collect(c.own.all())))
		next[c] = c.after(old, &Commit{Put: puts, Remove: names(removed), Revision: commit.Revision, Since: commit.Since})
	}
}
