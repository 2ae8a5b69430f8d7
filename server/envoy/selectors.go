package envoy

import (
	"iter"
	"slices"

	"tributary/resource"
	"tributary/server/envoy/index"
)

// reviewProfiles makes all clients request their profile again if the selecting conditions changed. After it returns, a
// client gets no changes until it has the scope of its new profile.
func (c *Catalog) reviewProfiles() {
	c.mu.Lock()
	changes := c.mesh.Selectors.Changes
	changed, review := changes != c.reviewedChanges, c.review
	c.reviewedChanges = changes
	c.mu.Unlock()
	if changed && review != nil {
		review()
	}
}

// reviewServers makes clients with changed service ports request their profile again.
func (c *Catalog) reviewServers() {
	c.mu.Lock()
	moved := c.mesh.Moved()
	c.mu.Unlock()
	for client := range moved {
		client.Review()
	}
}

// reviewBefore divides clients by the conditions of objects in a change. Call finish after the change: before that, the
// conditions of deleted objects stay. So a client never loses resources by its old profile that its new profile has,
// and no client gets a scope without changes that another one already has.
func (c *Catalog) reviewBefore(objects iter.Seq[*resource.Resource]) (finish func()) {
	var conditions []index.Selectors
	for object := range objects {
		if object.Key().Kind == resource.ServiceEntry {
			conditions = append(conditions, index.SelectorsOfEntry(object.Key().Namespace, index.ExportedTo(object.Body())))
		}
		if !slices.Contains(index.SelectingKinds, object.Key().Kind) {
			continue
		}
		if spec, err := object.Spec(); err == nil { // else it is not served
			conditions = append(conditions, index.SelectorsOf(object, spec))
		}
	}
	apply := func(edit func(*index.SelectorIndex, index.Selectors)) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, selectors := range conditions {
			edit(c.mesh.Selectors, selectors)
		}
	}
	apply((*index.SelectorIndex).Add)
	c.reviewProfiles()
	return func() {
		apply((*index.SelectorIndex).Remove)
		c.reviewProfiles()
	}
}
