package guard

import (
	"time"

	"tributary/internal/words"
	"tributary/resource"
)

// Status describes a hold at one moment. It may be encoded as JSON.
type Status struct {
	Summary

	Held          []Held `json:"held"` // the first maxListed losses, by key
	FurtherLosses int    `json:"more"` // further losses
}

// Summary describes a hold without its keys.
type Summary struct {
	ID        string     `json:"id"` // stays the same over a restart
	Begun     time.Time  `json:"since"`
	EndTime   *time.Time `json:"until,omitempty"` // when it ends by itself without further changes
	Why       string     `json:"why"`
	Objects   int        `json:"objects"`   // lost
	Endpoints int        `json:"endpoints"` // lost, those of lost objects included
}

// Loss counts the lost objects and endpoints.
func (s *Summary) Loss() string {
	endpoints := words.Count(s.Endpoints, "endpoint", "endpoints")
	switch {
	case s.Endpoints == 0:
		return words.Count(s.Objects, "object", "objects")
	case s.Objects == 0:
		return endpoints
	}
	return words.Count(s.Objects, "object", "objects") + " and " + endpoints
}

// Held is a held loss of a key.
type Held struct {
	resource.Ref

	Missing   bool `json:"gone"`                // the source lacks it
	Endpoints int  `json:"endpoints,omitempty"` // lost
}

// maxListed caps Status.Held.
const maxListed = 50

// Status returns the present hold, or nil.
func (g *Guard) Status() *Status {
	hold := g.hold
	if hold == nil {
		return nil
	}
	status := &Status{Summary: Summary{
		ID: hold.id, Begun: hold.begun, Why: hold.reason, Objects: hold.sum.objects, Endpoints: hold.heldEndpoints,
	}, Held: []Held{}}
	if endTime, _ := g.EndTime(); !endTime.IsZero() {
		status.EndTime = &endTime
	}
	for _, l := range hold.firstLosses(maxListed) {
		status.Held = append(status.Held, Held{resource.Ref(l.key), l.desired == nil, l.held})
	}
	status.FurtherLosses = hold.size() - len(status.Held)
	return status
}

// Held reports whether a loss of key is held, and returns the object before it and as the source wants it, which is nil
// if the object is gone.
func (g *Guard) Held(key resource.Key) (original, desired *resource.Resource, held bool) {
	l, held := g.hold.get(key)
	return l.original, l.desired, held
}

// HeldDeletion returns the served object of key if the source lacks it and the loss is held, else nil.
func (g *Guard) HeldDeletion(key resource.Key) *resource.Resource {
	if l, held := g.hold.get(key); held && l.desired == nil {
		return l.served
	}
	return nil
}

// HeldDeletions returns, by group and in order of key, the served objects that the source lacks.
func (g *Guard) HeldDeletions() map[string][]*resource.Resource {
	served := make(map[string][]*resource.Resource)
	for _, l := range g.hold.firstLosses(g.hold.size()) {
		if group := l.original.Origin().Group; l.desired == nil {
			served[group] = append(served[group], l.served)
		}
	}
	return served
}

// IsHolding reports whether there is a hold.
func (g *Guard) IsHolding() bool { return g.hold != nil }

// Holds returns how many holds have begun.
func (g *Guard) Holds() int { return g.holdCount }

// EndTime returns when and why the hold ends by itself without further changes; zero if it does not.
func (g *Guard) EndTime() (endTime time.Time, reason string) {
	hold := g.hold
	if hold == nil {
		return endTime, reason
	}
	if g.settings.HoldFor > 0 {
		endTime, reason = hold.begun.Add(g.settings.HoldFor), "holdFor has passed"
	}
	if !hold.belowSince.IsZero() {
		if end := hold.belowSince.Add(g.settings.Window); endTime.IsZero() || end.Before(endTime) {
			endTime, reason = end, "its remaining loss has been below the limits for "+g.settings.Window.String()
		}
	}
	return endTime, reason
}
