package envoy

import (
	"sync"

	"tributary/resource"
)

// coverageCache remembers of objects whether they have fields without effect. It is safe for concurrent use.
type coverageCache struct {
	mu    sync.Mutex
	known map[resource.Key]looked
}

type looked struct {
	version  string
	affected bool
}

// affected says whether an object has fields without effect.
func (l *coverageCache) affected(r *resource.Resource) bool {
	l.mu.Lock()
	was, ok := l.known[r.Key()]
	l.mu.Unlock()
	if ok && was.version == r.Version() {
		return was.affected
	}
	now := looked{r.Version(), len(WithoutEffect(r)) > 0}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil {
		l.known = make(map[resource.Key]looked)
	}
	l.known[r.Key()] = now
	return now.affected
}

// forget forgets objects that are gone.
func (l *coverageCache) forget(keys []resource.Key, has func(resource.Key) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		if !has(key) {
			delete(l.known, key)
		}
	}
}
