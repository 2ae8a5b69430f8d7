package envoy

import (
	"sync"

	"tributary/server/envoy/model"
	"tributary/server/envoy/translate"
)

// translationCache has the translations that scopes use, by the view. It is safe for concurrent use.
type translationCache struct {
	mu    sync.Mutex
	known map[model.Key]*translate.Translation
}

// acquire returns the translation of a view for one more scope, which must release it. translate makes it if no scope has it.
func (c *translationCache) acquire(key model.Key, translate func() *translate.Translation) *translate.Translation {
	if t := c.share(key, nil); t != nil {
		return t
	}
	return c.share(key, translate())
}

// share returns the known translation of a view for one more scope. If there is none, it keeps and returns made.
func (c *translationCache) share(key model.Key, made *translate.Translation) *translate.Translation {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.known[key]
	switch {
	case t == nil && made == nil:
		return nil
	case t == nil:
		if c.known == nil {
			c.known = make(map[model.Key]*translate.Translation)
		}
		t, made.Key = made, key
		c.known[key] = t
	}
	t.Users++
	return t
}

// release ends the use of a translation, which may be nil, by one scope. Without users it is dropped.
func (c *translationCache) release(t *translate.Translation) {
	if t == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.Users--; t.Users == 0 {
		delete(c.known, t.Key)
	}
}
