package envoy

import (
	"slices"
	"time"

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
	view := c.view.Snapshot()
	for _, key := range c.mesh.Invalid {
		if !slices.Contains(invalid, key) && view.Get(key) != nil { // a change is about to bring it
			invalid = append(slices.Clip(invalid), key)
		}
	}
	return c.set(nil, c.last, invalid)
}

// lingerTime is how long objects that are no longer said to be invalid count as such while the view changes without them: the one that has
// them may be under way.
const lingerTime = time.Second

// lingering adds to invalid objects those that were until now, for a while; c.mu is held.
func (c *Catalog) lingering(invalid []resource.Key) []resource.Key {
	now, all, ended, begun := time.Now(), slices.Clone(invalid), make(map[resource.Key]time.Time), false
	for _, key := range c.mesh.Invalid {
		if _, undecodable := c.undecodable[key]; undecodable || slices.Contains(invalid, key) {
			continue
		}
		since, known := c.ended[key]
		if !known {
			since = now
		}
		if now.Sub(since) < lingerTime {
			all, ended[key] = append(all, key), since
		}
		begun = begun || !known
	}
	if begun {
		time.AfterFunc(lingerTime, c.Recheck)
	}
	c.ended = ended
	slices.SortFunc(all, resource.Key.Compare)
	return all
}

// setInvalid sets the security objects of which no version is valid; c.mu is held.
func (c *Catalog) setInvalid(all []resource.Key, touched map[string]struct{}) {
	all = slices.DeleteFunc(slices.Clone(all), func(key resource.Key) bool { return c.last.Get(key) != nil }) // another source has it
	for key := range c.undecodable {
		if slices.Contains(resource.SecurityKinds, key.Kind) {
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
