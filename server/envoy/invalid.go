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
	select {
	case <-c.made.given:
	default:
		return nil // the first view will bring it
	}
	invalid := c.opts.Invalid()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.set(nil, c.last, c.lingering(invalid))
}

// lingerTime is how long objects that are no longer said to be invalid count as such: the change that has them may be under way.
const lingerTime = time.Second

// lingering adds to invalid objects those that were until now, for a while; c.mu is held.
func (c *Catalog) lingering(all []resource.Key) []resource.Key {
	now, view, ended := time.Now(), c.view.Snapshot(), make(map[resource.Key]time.Time)
	for _, key := range c.mesh.Invalid {
		if _, undecodable := c.undecodable[key]; undecodable || slices.Contains(all, key) {
			continue
		}
		since, known := c.ended[key]
		if !known {
			since = now
			time.AfterFunc(lingerTime, c.Recheck)
		}
		if now.Sub(since) < lingerTime || view.Get(key) != nil {
			all, ended[key] = append(slices.Clip(all), key), since
		}
	}
	c.ended = ended
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
