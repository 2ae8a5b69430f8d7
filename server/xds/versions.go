package xds

import (
	"iter"
	"slices"
	"strings"
)

// versions are the initial_resource_versions of a request, of which a client that resumes may bring along a hundred
// thousand. Their text stands in one string, so that there is not an allocation for each of them. The nil value is empty.
type versions struct {
	text strings.Builder
	ends []int               // of each name and version in text, in turn
	void map[string]struct{} // names to be taken for absent
}

// add takes one entry of a message of size bytes.
func (v *versions) add(name, version []byte, size int) {
	if v.ends == nil {
		v.text.Grow(size) // more than enough: all entries are of this message
	}
	v.text.Write(name)
	v.ends = append(v.ends, v.text.Len())
	v.text.Write(version)
	v.ends = append(v.ends, v.text.Len())
}

// forget has all not yield name.
func (v *versions) forget(name string) {
	if v == nil {
		return
	}
	if v.void == nil {
		v.void = make(map[string]struct{})
	}
	v.void[name] = struct{}{}
}

// all yields names and versions as they were given. Of a name that is given twice the last counts.
func (v *versions) all() iter.Seq2[string, string] {
	return func(yield func(name, version string) bool) {
		if v == nil {
			return
		}
		text, at := v.text.String(), 0
		for i := 0; i < len(v.ends); i += 2 {
			name, version := text[at:v.ends[i]], text[v.ends[i]:v.ends[i+1]]
			at = v.ends[i+1]
			if _, void := v.void[name]; !void && !yield(name, version) {
				return
			}
		}
	}
}

// index finds the entries of a state by name. It is made when clients resume, and shared by those that resume to the same
// state.
type index struct {
	entries []*Entry // in order of name
	places  map[string]int32
}

func (s *state) index() *index {
	return s.byName.get(func() *index {
		x := &index{entries: make([]*Entry, 0, s.len), places: make(map[string]int32, s.len)}
		for e := range s.all() {
			x.places[e.Name] = int32(len(x.entries)) //nolint:gosec // there is no memory for so many
			x.entries = append(x.entries, e)
		}
		return x
	})
}

// places is a set of places in an index.
type places []uint64

func newPlaces(n int) places { return make(places, (n+63)/64) }

func (p places) has(i int32) bool { return p[i/64]&(1<<(i%64)) != 0 }

func (p places) set(i int32, to bool) {
	if to {
		p[i/64] |= 1 << (i % 64)
	} else {
		p[i/64] &^= 1 << (i % 64)
	}
}

// resume compares to with what the client brought along from an earlier stream.
func (s *subscription) resume(to *state) (puts []*Entry, removed []string) {
	index := to.index()
	current := newPlaces(to.len) // what the client has as it is
	for name, version := range s.initial.all() {
		if !s.covers(name) {
			continue
		}
		if i, ok := index.places[name]; ok {
			current.set(i, index.entries[i].Version == version)
		} else {
			removed = append(removed, name)
		}
	}
	if s.wildcard {
		for i, e := range index.entries {
			if !current.has(int32(i)) { //nolint:gosec // as above
				puts = append(puts, e)
			}
		}
	}
	for name := range s.names {
		i, ok := index.places[name]
		switch {
		case !ok: // what is missing is said to be, whether or not the client had it
			removed = append(removed, name)
		case !s.wildcard && !current.has(i):
			puts = append(puts, index.entries[i])
		}
	}
	sortEntries(puts)
	slices.Sort(removed)
	return puts, slices.Compact(removed)
}
