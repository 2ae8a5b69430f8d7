package envoy

import (
	"context"
	"sync"
)

// booth is where a client is heard: its stream is told what there is in a scope of its own, in which objects are tried. Nobody else sees any of that.
type booth struct {
	tried []*aside // with which it begins
	left  func()   // called when the stream does not see it any more

	once  sync.Once
	scope *scope // nil until the client has come
}

// enter returns the scope of the booth, for a client of a profile, or nil if that is no longer heard there.
func (b *booth) enter(c *Catalog, p profile) *scope {
	b.once.Do(func() { b.scope = c.newScope(p, b.tried...) })
	return b.scope
}

// booths are those of all clients that are heard, by stream. They are safe for concurrent use.
type booths struct {
	mu  sync.Mutex
	all map[uint64]*booth
}

func (b *booths) of(stream uint64) *booth {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all[stream]
}

// set gives a stream a booth, or takes it away if that is nil.
func (b *booths) set(stream uint64, to *booth) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if to == nil {
		delete(b.all, stream)
		return
	}
	if b.all == nil {
		b.all = make(map[uint64]*booth)
	}
	b.all[stream] = to
}

// apart calls f while the client is heard, in a scope of its own in which objects are tried from the start. It returns errGone if the client is. Its place
// among the profiles is kept for it.
func (h *hearing) apart(ctx context.Context, tried []*aside, f func() error) error {
	p := h.scope.profile
	_, release, err := h.scopes.Acquire(ctx, p, h.about.Host, h.maker(p))
	if err != nil {
		return err
	}
	defer release()
	h.booth = &booth{tried: tried, left: h.seat.ring}
	stream := h.about.StreamID
	h.booths.set(stream, h.booth)
	h.witnesses().ReviewOf(stream)
	defer func() {
		h.booths.set(stream, nil)
		h.witnesses().ReviewOf(stream)
		if h.booth.scope != nil {
			h.drop(h.booth.scope)
		}
	}()
	h.booth.once.Do(func() {}) // who comes later sees what it sees
	if h.booth.scope == nil {
		return errGone
	}
	return f()
}
