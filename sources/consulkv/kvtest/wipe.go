package kvtest

import (
	"maps"
	"slices"
)

// Wipe drops all keys, as a Consul that starts without its data, except for those that have been written again. Waiting
// queries are cut off.
func (c *Consul) Wipe(exceptions ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.pairs, func(key string, _ Pair) bool { return !slices.Contains(exceptions, key) })
	clear(c.deleted)
	c.index = 1
	for key, p := range c.pairs {
		c.index++
		p.CreateIndex, p.ModifyIndex = c.index, c.index
		c.pairs[key] = p
	}
	c.wiped++
	c.wake()
}

// Forget drops the deletions, as Consul does after some minutes.
func (c *Consul) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.deleted)
}
