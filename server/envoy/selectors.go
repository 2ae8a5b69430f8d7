package envoy

import (
	"iter"
	"slices"

	"tributary/resource"
	"tributary/server/envoy/index"
)

// divide has all clients ask for their profile again if there are other conditions than before. When it returns, a client is sent nothing
// new until it has the scope of its new profile.
func (c *Catalog) divide() {
	c.mu.Lock()
	changes := c.mesh.Selectors.Changes
	changed, review := changes != c.divided, c.review
	c.divided = changes
	c.mu.Unlock()
	if changed && review != nil {
		review()
	}
}

// reviewServers has clients ask for their profile again whose service ports have changed.
func (c *Catalog) reviewServers() {
	c.mu.Lock()
	moved := c.mesh.Moved()
	c.mu.Unlock()
	for client := range moved {
		client.Review()
	}
}

// divideBefore divides clients by the conditions of objects that come with a change. Call done after the change: until then, the conditions
// of objects that go are kept. So a client never loses by its old profile what its new profile has, and no client gets a scope that lacks
// what another one has already.
func (c *Catalog) divideBefore(objects iter.Seq[*resource.Resource]) (done func()) {
	var all []index.Selectors
	for r := range objects {
		if r.Key().Kind == resource.ServiceEntry {
			all = append(all, index.SelectorsOfEntry(r.Key().Namespace, index.ExportedTo(r.Body())))
		}
		if !slices.Contains(index.SelectingKinds, r.Key().Kind) {
			continue
		}
		if spec, err := r.Spec(); err == nil { // else it is not served
			all = append(all, index.SelectorsOf(r, spec))
		}
	}
	each := func(do func(*index.SelectorIndex, index.Selectors)) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, selectors := range all {
			do(c.mesh.Selectors, selectors)
		}
	}
	each((*index.SelectorIndex).Add)
	c.divide()
	return func() {
		each((*index.SelectorIndex).Remove)
		c.divide()
	}
}
