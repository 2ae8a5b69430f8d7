package envoy

// changeProfiles changes the conditions that divide clients into profiles. If that has an effect, all clients request
// their profile again: after it returns, a client gets no changes until it has the scope of its new profile.
//
// A change has this order:
//  1. The conditions of changed objects are added.
//  2. The mesh changes, and all scopes catch up.
//  3. Old conditions are removed.
//
// So a client never loses resources by its old profile that its new profile has, and no client gets a scope without
// changes that another one already has. A review after the change of the mesh would be too late: a client that connects
// in between brings its scope up to date, also for the other clients of the scope.
func (c *Catalog) changeProfiles(change func()) {
	c.mu.Lock()
	change()
	changed := c.mesh.Selectors.TakeChanged()
	review := c.review
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
