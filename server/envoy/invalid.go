package envoy

import (
	"maps"
	"slices"
	"time"

	"tributary/resource"
)

// Recheck has clients follow what Options.Invalid returns. Call it when that changes; a change of the view does it, too.
func (c *Catalog) Recheck() {
	c.catchUpAll(c.change(nil, nil, false))
	c.divide()
}

// lingerTime is how long objects that are no longer said to be invalid count as such: the change that has them may be under way.
const lingerTime = time.Second

// setInvalid has the mesh refuse what the security objects may be about that have no valid version: those of a source, unless another one
// has them, and those that cannot be decoded; c.mu is held.
func (c *Catalog) setInvalid(ofSources []resource.Key, touched map[string]struct{}) {
	all := slices.AppendSeq(slices.Clone(ofSources), maps.Keys(c.undecodable))
	now, view, ended := time.Now(), c.view.Snapshot(), make(map[resource.Key]time.Time)
	for _, key := range c.mesh.Invalid {
		if slices.Contains(all, key) {
			continue
		}
		since, known := c.ended[key]
		if !known {
			since = now
			time.AfterFunc(lingerTime, c.Recheck)
		}
		if now.Sub(since) < lingerTime || view.Get(key) != nil {
			all, ended[key] = append(all, key), since
		}
	}
	c.ended = ended
	all = slices.DeleteFunc(all, func(key resource.Key) bool {
		_, undecodable := c.undecodable[key]
		return !resource.Restricts(key.Kind) || !undecodable && c.last.Get(key) != nil
	})
	slices.SortFunc(all, resource.Key.Compare)
	if all = slices.Compact(all); slices.Equal(all, c.mesh.Invalid) {
		return
	}
	for _, key := range all {
		if !slices.Contains(c.mesh.Invalid, key) {
			c.log.Error("no version of a security object is valid", "object", key.String(), "refused", !c.opts.WarnUnenforced)
		}
	}
	c.mesh.SetInvalid(all, touched)
}
