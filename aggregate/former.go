package aggregate

import (
	"slices"

	"tributary/memstore"
	"tributary/resource"
)

// told returns what the sources said and the former ones, the newest first. A former one whose name a source had since that was
// read has no say any more.
func (v *View) told() (all []*said) {
	for _, s := range v.sources {
		all = append(all, s.said)
		if s.synced {
			delete(v.spoke, s.Name)
		}
	}
	for _, f := range v.formers {
		if !slices.ContainsFunc(v.sources, func(s *followed) bool { return s.synced && s.Name == f.Name }) {
			all = append(all, f)
		}
	}
	return all
}

// retire makes the former sources those of left, the newest first. Of one name there is one: half of what an unread one said counts
// for nothing beside what was said before. All together they keep a key once, so that they do not grow with the number
// of reloads; but a source with Merge stays whole, as endpoints add up.
func (v *View) retire(left []*said, old []*followed) {
	unread := make(map[*said]bool)
	for _, s := range old {
		unread[s.said] = !s.synced
	}
	v.formers = nil
	known := make(map[resource.Key]bool)
	for i, s := range left {
		if unread[s] && (v.spoke[s.Name] || slices.ContainsFunc(left[i+1:], func(o *said) bool { return o.Name == s.Name })) {
			continue
		}
		if s.snapshot.Len() > 0 {
			v.spoke[s.Name] = true
		}
		if s.Merge == nil {
			s = s.without(known)
		}
		for _, key := range s.keys() {
			known[key] = known[key] || s.get(key) != nil
		}
		if s.snapshot.Len() > 0 {
			v.formers = append(v.formers, s)
		}
	}
}

// without returns s, or what it says of other keys than those that are known.
func (s *said) without(known map[resource.Key]bool) *said {
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
	return &said{
		Source:   Source{Name: s.Name, Precedence: s.Precedence, Optional: s.Optional}, // of no Reader: it does not go on from here
		snapshot: table.Snapshot(),
	}
}

// voice is a source that has a say.
type voice struct {
	*said
	former bool
}

// voices returns the sources and the former ones in order of precedence. A former one lies behind the one that replaces it,
// which has its name, or else last.
func (v *View) voices() (all []voice) {
	unreplaced := slices.Clone(v.formers)
	for _, s := range v.sources {
		all = append(all, voice{s.said, false})
		unreplaced = slices.DeleteFunc(unreplaced, func(f *said) bool {
			if f.Name == s.Name {
				all = append(all, voice{f, true})
			}
			return f.Name == s.Name
		})
	}
	for _, f := range unreplaced {
		all = append(all, voice{f, true})
	}
	return all
}
