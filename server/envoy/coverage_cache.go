package envoy

import (
	"sync"

	"tributary/resource"
)

// coverageCache remembers of objects whether they have fields without effect. It is safe for concurrent use.
type coverageCache struct {
	mu    sync.Mutex
	known map[resource.Key]coverageResult
}

type coverageResult struct {
	version  string
	affected bool
}

// affected says whether an object has fields without effect.
func (c *coverageCache) affected(r *resource.Resource) bool {
	c.mu.Lock()
	was, ok := c.known[r.Key()]
	c.mu.Unlock()
	if ok && was.version == r.Version() {
		return was.affected
	}
	now := coverageResult{r.Version(), len(WithoutEffect(r)) > 0}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = make(map[resource.Key]coverageResult)
	}
	c.known[r.Key()] = now
	return now.affected
}

// forget forgets objects that are gone.
func (c *coverageCache) forget(keys []resource.Key, has func(resource.Key) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range keys {
		if !has(key) {
			delete(c.known, key)
		}
	}
}
