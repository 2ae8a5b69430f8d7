package envoy

import (
	"maps"
	"slices"

	"tributary/resource"
)

// setInvalid tells the mesh which security objects have no valid version, so that it refuses the traffic that they may
// restrict: invalid objects of a source, unless another source has a valid version, and undecodable objects. c.mu is
// held.
func (c *Catalog) setInvalid() {
	invalid := slices.Collect(maps.Keys(c.undecodable))
	for _, key := range c.last.Invalid() {
		if c.last.Get(key) == nil {
			invalid = append(invalid, key)
		}
	}
	invalid = slices.DeleteFunc(invalid, func(key resource.Key) bool { return !resource.Restricts(key.Kind) })
	slices.SortFunc(invalid, resource.Key.Compare)
	if slices.Equal(invalid, c.mesh.Invalid) {
		return
	}
	added := slices.DeleteFunc(slices.Clone(invalid), func(key resource.Key) bool {
		_, exists := slices.BinarySearchFunc(c.mesh.Invalid, key, resource.Key.Compare)
		return exists
	})
	for _, key := range added[:min(len(added), maxWarned)] {
		c.log.Error("no version of a security object is valid", "object", key.String(), "refused", !c.options.WarnUnenforced)
	}
	if len(added) > maxWarned {
		c.log.Error("no version of further security objects is valid", "count", len(added)-maxWarned)
	}
	c.mesh.SetInvalid(invalid)
}
