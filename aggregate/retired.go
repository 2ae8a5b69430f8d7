package aggregate

import (
	"slices"

	"tributary/memstore"
	"tributary/resource"
)

// states returns the states of the sources and of the retired ones, newest first, without retired sources that a synced one of the same
// name replaces. It also deletes the names of synced sources from hadObjects.
func (v *View) states() (all []*sourceState) {
	for _, s := range v.sources {
		all = append(all, s.sourceState)
		if s.synced {
			delete(v.hadObjects, s.Name)
		}
	}
	for _, f := range v.retired {
		if !slices.ContainsFunc(v.sources, func(s *followed) bool { return s.synced && s.Name == f.Name }) {
			all = append(all, f)
		}
	}
	return all
}

// retire makes left, newest first, the retired sources. It keeps one of each name: an older whole state counts more than the partial one of
// a source that was never read. Together they keep each key once, so that they do not grow with the number of reloads; a source with Merge
// stays whole, since its endpoints add up.
func (v *View) retire(left []*sourceState, old []*followed) {
	unread := make(map[*sourceState]bool)
	for _, s := range old {
		unread[s.sourceState] = !s.synced
	}
	v.retired = nil
	known := make(map[resource.Key]bool)
	for i, s := range left {
		if unread[s] && (v.hadObjects[s.Name] || slices.ContainsFunc(left[i+1:], func(o *sourceState) bool { return o.Name == s.Name })) {
			continue
		}
		if s.snapshot.Len() > 0 {
			v.hadObjects[s.Name] = true
		}
		if s.Merge == nil {
			s = s.without(known)
		}
		for _, key := range s.keys() {
			known[key] = known[key] || s.layer(0).get(key) != nil
		}
		if s.snapshot.Len() > 0 {
			v.retired = append(v.retired, s)
		}
	}
}

// without returns s without the known keys.
func (s *sourceState) without(known map[resource.Key]bool) *sourceState {
	var rest []*resource.Resource
	for r := range s.snapshot.All() {
		if !known[r.Key()] {
			rest = append(rest, r)
		}
	}
	if len(rest) == s.snapshot.Len() {
		return s
	}
	var table memstore.Table
	table.Apply(rest, nil)
	return &sourceState{
		Source:   Source{Name: s.Name, Precedence: s.Precedence, Optional: s.Optional}, // its Reader is nil: it is not updated
		snapshot: table.Snapshot(),
	}
}

// orderedSource is a source in the order of precedence.
type orderedSource struct {
	*sourceState
	retired bool
}

// withRetired returns the sources and the retired ones in order of precedence. A retired source follows its replacement of the same name,
// or else comes last.
func (v *View) withRetired() (all []orderedSource) {
	unreplaced := slices.Clone(v.retired)
	for _, s := range v.sources {
		all = append(all, orderedSource{s.sourceState, false})
		unreplaced = slices.DeleteFunc(unreplaced, func(f *sourceState) bool {
			if f.Name == s.Name {
				all = append(all, orderedSource{f, true})
			}
			return f.Name == s.Name
		})
	}
	for _, f := range unreplaced {
		all = append(all, orderedSource{f, true})
	}
	return all
}
