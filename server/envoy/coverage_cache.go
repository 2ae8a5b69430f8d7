package envoy

import (
	"sync"

	"tributary/resource"
)

// coverageCache remembers which objects have fields without effect. It is safe for concurrent use.
type coverageCache struct {
	mu      sync.Mutex
	results map[resource.Key]coverageResult
}

type coverageResult struct {
	version  string
	affected bool
}

// affected reports whether an object has fields without effect.
func (c *coverageCache) affected(object *resource.Resource) bool {
	c.mu.Lock()
	cached, ok := c.results[object.Key()]
	c.mu.Unlock()
	if ok && cached.version == object.Version() {
		return cached.affected
	}
	result := coverageResult{object.Version(), len(WithoutEffect(object)) > 0}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.results == nil {
		c.results = make(map[resource.Key]coverageResult)
	}
	c.results[object.Key()] = result
	return result.affected
}

// forget removes objects that no longer exist.
func (c *coverageCache) forget(keys []resource.Key, exists func(resource.Key) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range keys {
		if !exists(key) {
			delete(c.results, key)
		}
	}
}
