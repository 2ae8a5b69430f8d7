package guard

import (
	"time"

	"tributary/resource"
)

// Status is a hold at one moment. It is a copy, and may be encoded as JSON.
type Status struct {
	Since     time.Time  `json:"since"`
	Until     *time.Time `json:"until,omitempty"` // when it ends by itself
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
	st := &Status{Since: h.since, Why: h.why, Objects: h.objects, Endpoints: h.endpoints, Held: []Held{}}
	if g.settings.HoldFor > 0 {
		until := h.since.Add(g.settings.HoldFor)
		st.Until = &until
	}
	for _, l := range h.first(listed) {
		st.Held = append(st.Held, Held{l.key.Kind, l.key.Namespace, l.key.Name, l.desired == nil, l.endpoints})
	}
	st.More = h.size() - len(st.Held)
	return st
}

// Holds reports whether a loss of key is held.
func (g *Guard) Holds(key resource.Key) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.hold.size() == 0 {
		return false
	}
	_, ok := g.hold.held.Get(loss{key: key})
	return ok
}

// Counts returns the numbers of what is held, and of the holds begun so far. It costs nothing.
func (g *Guard) Counts() (objects, endpoints, holds int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if h := g.hold; h != nil {
		return h.objects, h.endpoints, g.holds
	}
	return 0, 0, g.holds
}
