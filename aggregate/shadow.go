package aggregate

import (
	"cmp"
	"iter"
	"slices"

	"tributary/memstore"
	"tributary/resource"
)

// Candidate is one source's object of a key.
type Candidate struct {
	Source   string // for a merged object several names, separated by ", "
	Resource *resource.Resource
}

// Shadow is a key that more than one source has.
type Shadow struct {
	Key    resource.Key
	Winner Candidate
	Losers []Candidate // in order of precedence
}

// Shadows yields every key that more than one source has, in key order, all as of one moment.
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

// SourceStatus describes a source of the view.
type SourceStatus struct {
	Name       string `json:"name"`
	Precedence int    `json:"precedence"`
	Optional   bool   `json:"optional,omitempty"`
	Synced     bool   `json:"synced"`
	// Retiring: the source was removed, and is served until all new sources are synced.
	Retiring bool              `json:"retiring,omitempty"`
	Revision memstore.Revision `json:"revision"` // of the source's store that is merged
	Objects  int               `json:"objects"`
}

// Sources returns the sources in order of precedence.
func (v *View) Sources() []SourceStatus { return slices.Clone(v.published.Load().sources) }

// status returns the present status of the sources. It is called by the loop.
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

// candidates returns the layers' objects of key, the winner first.
func (s *state) candidates(key resource.Key) (all []Candidate) {
	for l, r := range having(s.layers, key) {
		all = append(all, Candidate{Source: cmp.Or(l.source, r.Origin().Source), Resource: r})
	}
	return all
}
