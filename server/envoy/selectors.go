package envoy

import (
	"iter"
	"slices"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/envoy/index"
)

// reviewIf has all clients ask for their profile again if changed, which is called while c.mu is held, says so.
func (c *Catalog) reviewIf(changed func() bool) (reviewed bool) {
	c.mu.Lock()
	due, review := changed(), c.review
	c.mu.Unlock()
	if due = due && review != nil; due {
		review()
	}
	return due
}

// divide has all clients ask for their profile again if there are other conditions than before. When it returns, a client is sent nothing
// new until it has the scope of its new profile.
func (c *Catalog) divide() {
	c.reviewIf(func() bool {
		before := c.divided
		c.divided = c.mesh.Selectors.Changes
		return c.divided != before
	})
}

// reviewServers has clients ask for their profile again whose service ports have changed; all clients if what Sidecars say of ingress has.
func (c *Catalog) reviewServers() {
	var moved map[index.Reviewer]struct{}
	if c.reviewIf(func() bool {
		before := c.ingresses
		c.ingresses = c.mesh.Ingresses
		c.mesh.Expect(nil)
		moved = c.mesh.Moved()
		return c.ingresses != before
	}) {
		return
	}
	for client := range moved {
		client.Review()
	}
}

// expectSidecars has clients ask for their profile before a change of Sidecars with ingress listeners, which may need their addresses. So
// no listener goes that stays.
func (c *Catalog) expectSidecars(keys []resource.Key, snap memstore.Snapshot) {
	c.reviewIf(func() bool {
		changes := make(map[resource.Key]*resource.Resource)
		for _, key := range keys {
			if key.Kind == resource.Sidecar {
				changes[key] = snap.Get(key)
			}
		}
		return c.mesh.Expect(changes)
	})
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
