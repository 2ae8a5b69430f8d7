package envoy

import (
	"maps"

	"tributary/resource"
)

// What is served to everybody is of one mesh. The clients of a scope for which some objects are otherwise are told what the mesh would be with these: for as
// long as they are translated, it is.

// under calls f while some objects are what they are instead, and returns the hosts on which that bears; c.mu is held.
func (c *Catalog) under(instead map[resource.Key]*resource.Resource, f func()) (touched map[string]struct{}) {
	touched = make(map[string]struct{})
	c.mesh.tentatively(func() {
		for key, r := range instead {
			_ = c.mesh.set(key, r, touched) // that it cannot be decoded was said when it came
		}
		c.mesh.touchOthers(touched)
		f()
		for key := range instead {
			_ = c.mesh.set(key, c.present(key), touched)
		}
		c.mesh.touchOthers(touched)
	})
	return touched
}

// present returns what is translated for everybody of an object, or nil; c.mu is held.
func (c *Catalog) present(key resource.Key) *resource.Resource {
	return c.quarantine.present(key, c.last.Get(key))
}

// tentatively calls f, which leaves the mesh as it was. Nobody is told apart by what objects look at meanwhile.
func (m *mesh) tentatively(f func()) {
	lookouts, moved := m.lookouts, m.moved
	m.lookouts, m.moved = newLookouts(), make(map[string]struct{})
	f()
	m.lookouts, m.moved = lookouts, moved
}

// follow has a scope follow the mesh, in which what is said of some hosts has changed; c.mu is held.
func (c *Catalog) follow(s *scope, touched map[string]struct{}) {
	if !s.isApart(c.quarantine) {
		s.follow(c.mesh, touched)
		return
	}
	bears := c.under(c.quarantine.insteadOf(s), func() { s.follow(c.mesh, touched) })
	maps.Copy(s.stale, s.bears) // of what was instead before
	maps.Copy(s.stale, bears)
	s.bears = bears
}

// isApart says whether some objects are, or were, otherwise for the clients of the scope than for everybody.
func (s *scope) isApart(q *quarantine) bool {
	return len(s.tried)+len(s.bears)+len(q.of[s.reach]) > 0
}

// translateHosts calls f while the mesh is what the clients of a scope are told of, and not longer than one may keep others waiting.
func (c *Catalog) translateHosts(s *scope, f func()) {
	c.mu.RLock()
	apart := s.isApart(c.quarantine)
	if !apart {
		defer c.mu.RUnlock()
		f()
		return
	}
	c.mu.RUnlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.under(c.quarantine.insteadOf(s), f)
}
