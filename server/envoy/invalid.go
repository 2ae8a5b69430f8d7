package envoy

import (
	"maps"
	"slices"
	"time"

	"tributary/resource"
)

// Recheck brings clients up to date with Options.Invalid. Call it when its result changes; a change of the view
// includes it.
func (c *Catalog) Recheck() {
	c.catchUpAll(c.changeMesh(nil, nil, false))
	c.reviewProfiles()
}

// lingerTime is how long objects count as invalid after Options.Invalid drops them: the change with their valid version
// may be under way.
const lingerTime = time.Second

// setInvalid tells the mesh which security objects have no valid version, so that it refuses the traffic that they may
// concern: objects of a source, unless another source has a valid version, and undecodable objects; c.mu is held.
func (c *Catalog) setInvalid(invalidInSources []resource.Key, touched map[string]struct{}) {
	restricting := func(keys []resource.Key) []resource.Key {
		keys = slices.DeleteFunc(keys, func(key resource.Key) bool { return !resource.Restricts(key.Kind) })
		slices.SortFunc(keys, resource.Key.Compare)
		return slices.Compact(keys)
	}
	contains := func(sorted []resource.Key, key resource.Key) bool {
		_, exists := slices.BinarySearchFunc(sorted, key, resource.Key.Compare)
		return exists
	}
	listed := restricting(slices.AppendSeq(slices.Clone(invalidInSources), maps.Keys(c.undecodable)))
	invalid := slices.Clone(listed)
	now, view, validSince := time.Now(), c.view.Snapshot(), make(map[resource.Key]time.Time)
	for _, key := range c.mesh.Invalid {
		if contains(listed, key) {
			continue
		}
		valid, lingering := c.validSince[key]
		if !lingering {
			valid = now
			time.AfterFunc(lingerTime, c.Recheck)
		}
		if now.Sub(valid) < lingerTime || view.Get(key) != nil {
			invalid, validSince[key] = append(invalid, key), valid
		}
	}
	c.validSince = validSince
	invalid = restricting(slices.DeleteFunc(invalid, func(key resource.Key) bool {
		_, undecodable := c.undecodable[key]
		return !undecodable && c.last.Get(key) != nil
	}))
	if slices.Equal(invalid, c.mesh.Invalid) {
		return
	}
	added := slices.DeleteFunc(slices.Clone(invalid), func(key resource.Key) bool { return contains(c.mesh.Invalid, key) })
	for _, key := range added[:min(len(added), maxWarned)] {
		c.log.Error("no version of a security object is valid", "object", key.String(), "refused", !c.options.WarnUnenforced)
	}
	if len(added) > maxWarned {
		c.log.Error("no version of further security objects is valid", "count", len(added)-maxWarned)
	}
	c.mesh.SetInvalid(invalid, touched)
}
