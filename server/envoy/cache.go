package envoy

import (
	"sync"

	"tributary/server/envoy/model"
	"tributary/server/envoy/translate"
)

// translationCache is what views were translated to, for as long as scopes have it. It is safe for concurrent use.
type translationCache struct {
	mu    sync.Mutex
	known map[model.Key]*translate.Translation
}

// acquire returns the translation of a view for one more scope, which is to release it. If none has it, translate makes it.
func (u *translationCache) acquire(of model.Key, translate func() *translate.Translation) *translate.Translation {
	if t := u.share(of, nil); t != nil {
		return t
	}
	return u.share(of, translate())
}

// share returns the translation that there is for one more scope; or made, if there is none.
func (u *translationCache) share(of model.Key, made *translate.Translation) *translate.Translation {
	u.mu.Lock()
	defer u.mu.Unlock()
	t := u.known[of]
	switch {
	case t == nil && made == nil:
		return nil
	case t == nil:
		if u.known == nil {
			u.known = make(map[model.Key]*translate.Translation)
		}
		t, made.Key = made, of
		u.known[of] = t
	}
	t.Users++
	return t
}

// release ends that a scope has a translation, which may be nil, and forgets it if that was the last one.
func (u *translationCache) release(t *translate.Translation) {
	if t == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if t.Users--; t.Users == 0 {
		delete(u.known, t.Key)
	}
}
