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
	restricting := func(keys []resource.Key) []resource.Key {
		keys = slices.DeleteFunc(keys, func(key resource.Key) bool { return !resource.Restricts(key.Kind) })
		slices.SortFunc(keys, resource.Key.Compare)
		return slices.Compact(keys)
	}
	contains := func(sorted []resource.Key, key resource.Key) bool {
		_, exists := slices.BinarySearchFunc(sorted, key, resource.Key.Compare)
		return exists
	}
	listed := restricting(slices.AppendSeq(slices.Clone(ofSources), maps.Keys(c.undecodable)))
	all := slices.Clone(listed)
	now, view, ended := time.Now(), c.view.Snapshot(), make(map[resource.Key]time.Time)
	for _, key := range c.mesh.Invalid {
		if contains(listed, key) {
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
	all = restricting(slices.DeleteFunc(all, func(key resource.Key) bool {
		_, undecodable := c.undecodable[key]
		return !undecodable && c.last.Get(key) != nil
	}))
	if slices.Equal(all, c.mesh.Invalid) {
		return
	}
	added := slices.DeleteFunc(slices.Clone(all), func(key resource.Key) bool { return contains(c.mesh.Invalid, key) })
	for _, key := range added[:min(len(added), maxWarned)] {
		c.log.Error("no version of a security object is valid", "object", key.String(), "refused", !c.opts.WarnUnenforced)
	}
	if len(added) > maxWarned {
		c.log.Error("no version of further security objects is valid", "count", len(added)-maxWarned)
	}
	c.mesh.SetInvalid(all, touched)
}
