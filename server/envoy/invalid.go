package envoy

import (
	"slices"

	"tributary/resource"
)

// Recheck has clients follow what Options.Invalid returns. Call it when that changes; a change of the view does it, too.
func (c *Catalog) Recheck() {
	c.catchUpAll(c.checkInvalid())
	c.divide()
}

// checkInvalid brings the mesh to what Options.Invalid returns, and returns the scopes with clients.
func (c *Catalog) checkInvalid() []*scope {
	c.checking.Lock()
	defer c.checking.Unlock()
	invalid := c.opts.Invalid()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.set(nil, c.last, invalid)
}

// setInvalid sets the security objects of which no version is valid; c.mu is held.
func (c *Catalog) setInvalid(all []resource.Key, touched map[string]struct{}) {
	all = slices.DeleteFunc(slices.Clone(all), func(key resource.Key) bool { return c.last.Get(key) != nil }) // another source has it
	for key := range c.undecodable {
		switch key.Kind {
		case resource.AuthorizationPolicy, resource.RequestAuthentication, resource.PeerAuthentication:
			all = append(all, key)
		}
	}
	slices.SortFunc(all, resource.Key.Compare)
	if slices.Equal(all, c.mesh.Invalid) {
		return
	}
	for _, key := range all {
		if !slices.Contains(c.mesh.Invalid, key) {
			c.log.Error("no version of a security object is valid", "object", key.String(), "refused", !c.opts.WarnUnenforced)
		}
	}
	c.mesh.SetInvalid(all, touched)
}
