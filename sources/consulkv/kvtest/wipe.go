package kvtest

import (
	"maps"
	"slices"
)

// Wipe loses everything, as a Consul that starts without its data, but what has been written again: who waits is cut
// off.
func (c *Consul) Wipe(but ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.pairs, func(key string, _ Pair) bool { return !slices.Contains(but, key) })
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

// Forget forgets what was deleted, as Consul does after some minutes.
func (c *Consul) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.deleted)
}
