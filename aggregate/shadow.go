package aggregate

import (
	"iter"
	"slices"

	"tributary/memstore"
	"tributary/resource"
)

// Candidate is what one source says of a key.
type Candidate struct {
	Source   string // several names, separated by ", ", of what is merged by host
	Resource *resource.Resource
}

// Shadow is a key that more than one source has.
type Shadow struct {
	Key    resource.Key
	Winner Candidate
	Losers []Candidate // in order of precedence
}

// Shadowed returns what the sources that do not win key say of it, in order of precedence.
func (v *View) Shadowed(key resource.Key) []Candidate {
	if all := v.published.Load().candidates(key); len(all) > 1 {
		return all[1:]
	}
	return nil
}

// Shadows yields every key that more than one source has, in key order. All that it yields is of one moment.
func (v *View) Shadows() iter.Seq[Shadow] {
	s := v.published.Load()
	return func(yield func(Shadow) bool) {
		for r := range s.shadowed.All() {
			all := s.candidates(r.Key())
			if !yield(Shadow{Key: r.Key(), Winner: all[0], Losers: all[1:]}) {
				return
			}
		}
	}
}

// SourceStatus is a source as the view sees it.
type SourceStatus struct {
	Name       string `json:"name"`
	Precedence int    `json:"precedence"`
	Optional   bool   `json:"optional,omitempty"`
	Synced     bool   `json:"synced"`
	// Retiring says that the source was removed, and is served until the sources that were added are synced.
	Retiring bool              `json:"retiring,omitempty"`
	Revision memstore.Revision `json:"revision"` // of the source's store, as far as it is merged
	Objects  int               `json:"objects"`
}

// Sources returns the sources in order of precedence.
func (v *View) Sources() []SourceStatus { return slices.Clone(v.published.Load().sources) }

// status is what Sources returns of this moment. It is called by the loop.
func (v *View) status() (all []SourceStatus) {
	synced := make(map[*sourceState]bool, len(v.sources))
	for _, s := range v.sources {
		synced[s.sourceState] = s.synced
	}
	for _, s := range v.withRetired() {
		all = append(all, SourceStatus{
			Name: s.Name, Precedence: s.Precedence, Optional: s.Optional,
			Synced: synced[s.sourceState], Retiring: s.retired,
			Revision: s.snapshot.Revision(), Objects: s.snapshot.Len(),
		})
	}
	return all
}

// candidates returns what the layers say of key, the winner first. One that fills gaps is none unless it wins.
func (s *state) candidates(key resource.Key) (all []Candidate) {
	for _, l := range s.layers {
		if r := l.get(key); r != nil && (len(all) == 0 || !l.fills()) {
			all = append(all, Candidate{Source: l.cite(r).Source, Resource: r})
		}
	}
	return all
}
