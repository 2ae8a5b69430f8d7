package envoy

import (
	"sync"

	"tributary/server/envoy/model"
	"tributary/server/envoy/translate"
)

// translationCache shares the translations of views between scopes. It is safe for concurrent use.
type translationCache struct {
	mu           sync.Mutex
	translations map[model.Key]*translate.Translation
}

// acquire returns the translation of a view for a further scope, which must release it. It calls translate if no scope
// uses one.
func (c *translationCache) acquire(key model.Key, translate func() *translate.Translation) *translate.Translation {
	if translation := c.share(key, nil); translation != nil {
		return translation
	}
	return c.share(key, translate())
}

// share returns the cached translation of a view for a further scope. Without one, it caches and returns created.
func (c *translationCache) share(key model.Key, created *translate.Translation) *translate.Translation {
	c.mu.Lock()
	defer c.mu.Unlock()
	translation := c.translations[key]
	switch {
	case translation == nil && created == nil:
		return nil
	case translation == nil:
		if c.translations == nil {
			c.translations = make(map[model.Key]*translate.Translation)
		}
		translation, created.Key = created, key
		c.translations[key] = translation
	}
	translation.Users++
	return translation
}

// release ends the use of a translation, which may be nil, by one scope. Without users it is dropped.
func (c *translationCache) release(translation *translate.Translation) {
	if translation == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if translation.Users--; translation.Users == 0 {
		delete(c.translations, translation.Key)
	}
}
