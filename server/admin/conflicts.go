package admin

import (
	"tributary/aggregate"
	"tributary/internal/words"
	"tributary/resource"
)

// conflictEntry is an entry of /debug/conflicts: a key that several sources have (shadowed), or that one source has
// more than once (duplicate), or a ServiceEntry that cannot be merged into that of its host (refused).
type conflictEntry struct {
	resource.Ref

	Winner location   `json:"winner"`
	Losers []location `json:"losers"`
	Reason string     `json:"reason,omitempty"` // why a ServiceEntry cannot be merged
}

// location is the origin of an object.
type location struct {
	Source string `json:"source"`
	Place  string `json:"place"`
}

// conflictEntries is the answer of /debug/conflicts.
func (s *Server) conflictEntries() []conflictEntry {
	entries := []conflictEntry{}
	addEntry := func(ref resource.Ref, winner location, reason string, losers ...location) {
		entries = append(entries, conflictEntry{ref, winner, losers, reason})
	}
	for shadow := range s.opts.View.Shadows() {
		addEntry(resource.Ref(shadow.Key), newLocation(shadow.Winner), "", words.Each(shadow.Losers, newLocation)...)
	}
	for _, refusal := range s.opts.View.Refusals() {
		addEntry(resource.Ref(refusal.Key), newLocation(refusal.Winner), refusal.Reason, newLocation(refusal.Loser))
	}
	for _, source := range s.opts.Sources.Status() {
		locate := func(place string) location { return location{source.Name, place} }
		for _, duplicate := range source.Duplicates {
			addEntry(duplicate.Ref, locate(duplicate.Winner), "", words.Each(duplicate.Losers, locate)...)
		}
	}
	return entries
}

func newLocation(candidate aggregate.Candidate) location {
	return location{candidate.Source, candidate.Resource.Origin().Place}
}
