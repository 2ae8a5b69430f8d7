package aggregate

import (
	"iter"

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
func (v *View) Sources() []SourceStatus {
	var all []SourceStatus
	for _, in := range v.published.Load().inputs {
		if in.pooled {
			continue
		}
		all = append(all, SourceStatus{
			Name: in.Name, Precedence: in.Precedence, Optional: in.Optional,
			Synced: in.synced, Retiring: in.retiring,
			Revision: in.snapshot.Revision(), Objects: in.snapshot.Len(),
		})
	}
	return all
}

// nameOf returns the name of the source of r: of what is merged, the names of all that it is made of.
func (in *input) nameOf(r *resource.Resource) string {
	if in.pooled {
		return r.Origin().Source
	}
	return in.Name
}

// candidates returns what the sources say of key, the winner first. A retiring source is none unless it wins.
func (s *state) candidates(key resource.Key) []Candidate {
	var all []Candidate
	for _, in := range s.inputs {
		if r := in.get(key); r != nil && (len(all) == 0 || !in.retiring) {
			all = append(all, Candidate{Source: in.nameOf(r), Resource: r})
		}
	}
	return all
}
