package guard

import (
	"slices"
	"time"

	"tributary/resource"
)

// Status is a hold at one moment. It is a copy, and may be encoded as JSON.
type Status struct {
	ID        string     `json:"id"` // stays the same over a restart
	Since     time.Time  `json:"since"`
	Until     *time.Time `json:"until,omitempty"` // when it ends by itself, if nothing changes
	Why       string     `json:"why"`
	Objects   int        `json:"objects"`   // that the source no longer has
	Endpoints int        `json:"endpoints"` // that it no longer has, with those of the objects
	Held      []Held     `json:"held"`      // the first of them, by key
	More      int        `json:"more"`      // how many there are besides
}

// Held is a key of which a loss is held.
type Held struct {
	Kind      resource.Kind `json:"kind"`
	Namespace string        `json:"namespace"`
	Name      string        `json:"name"`
	Gone      bool          `json:"gone"`                // the source does not have it
	Endpoints int           `json:"endpoints,omitempty"` // that it loses
}

// listed is how many keys a Status has.
const listed = 50

// Status returns the hold there is, or nil.
func (g *Guard) Status() *Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.hold
	if h == nil {
		return nil
	}
	st := &Status{ID: h.id, Since: h.since, Why: h.why, Objects: h.sum.objects, Endpoints: h.sum.endpoints, Held: []Held{}}
	if until, _ := h.ends(g.settings); !until.IsZero() {
		st.Until = &until
	}
	for _, l := range h.first(listed) {
		st.Held = append(st.Held, Held{l.key.Kind, l.key.Namespace, l.key.Name, l.desired == nil, l.endpoints()})
	}
	st.More = h.size() - len(st.Held)
	return st
}

// Holds reports whether a loss of key is held.
func (g *Guard) Holds(key resource.Key) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, ok := g.hold.get(key)
	return ok
}

// Held returns the loss of an object that is held, if there is one: what was before it, and what the source says, which is nil if
// the object is gone.
func (g *Guard) Held(key resource.Key) (was, said *resource.Resource, held bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l, held := g.hold.get(key)
	return l.was, l.desired, held
}

// Gone returns what is served of an object that the source does not have, or nil.
func (g *Guard) Gone(key resource.Key) *resource.Resource {
	g.mu.Lock()
	defer g.mu.Unlock()
	if l, held := g.hold.get(key); held && l.desired == nil {
		return l.served
	}
	return nil
}

// GoneFrom returns what is served of the objects that a group had and the source does not have, by key.
func (g *Guard) GoneFrom(group string) (served []*resource.Resource) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.hold == nil {
		return nil
	}
	for key := range g.hold.gone[group] {
		l, _ := g.hold.get(key)
		served = append(served, l.served)
	}
	slices.SortFunc(served, func(a, b *resource.Resource) int { return a.Key().Compare(b.Key()) })
	return served
}

// Counts returns the numbers of what is held, and of the holds begun so far. It costs nothing.
func (g *Guard) Counts() (objects, endpoints, holds int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if h := g.hold; h != nil {
		return h.sum.objects, h.sum.endpoints, g.holds
	}
	return 0, 0, g.holds
}

// ends says when the hold ends by itself, if nothing changes, and why; zero if it does not.
func (h *hold) ends(s Settings) (at time.Time, why string) {
	if s.HoldFor > 0 {
		at, why = h.since.Add(s.HoldFor), "holdFor has passed"
	}
	if !h.below.IsZero() {
		if end := h.below.Add(s.Window); at.IsZero() || end.Before(at) {
			at, why = end, "what is left of it has been below the limits for "+s.Window.String()
		}
	}
	return at, why
}
