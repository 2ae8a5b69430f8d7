package envoy

import "sync"

// units is what views were translated to, for as long as scopes have it. It is safe for concurrent use.
type units struct {
	mu    sync.Mutex
	known map[key]*told
}

// acquire returns the translation of a view for one more scope, which is to release it. If none has it, translate makes it.
func (u *units) acquire(of key, translate func() *told) *told {
	if t := u.share(of, nil); t != nil {
		return t
	}
	return u.share(of, translate())
}

// share returns the translation that there is for one more scope; or made, if there is none.
func (u *units) share(of key, made *told) *told {
	u.mu.Lock()
	defer u.mu.Unlock()
	t := u.known[of]
	switch {
	case t == nil && made == nil:
		return nil
	case t == nil:
		if u.known == nil {
			u.known = make(map[key]*told)
		}
		t, made.key = made, of
		u.known[of] = t
	}
	t.users++
	return t
}

// release ends that a scope has a translation, which may be nil, and forgets it if that was the last one.
func (u *units) release(t *told) {
	if t == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(u.known, t.key)
	}
}
