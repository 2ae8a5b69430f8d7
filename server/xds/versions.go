package xds

import (
	"iter"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// versions are the initial_resource_versions of a request, of which a client that resumes may bring along a hundred
// thousand. They stay encoded, so that a name costs nothing of its own. The nil value is empty.
type versions struct {
	request []byte              // that has them; it was decoded without an error
	void    map[string]struct{} // names to be taken for absent
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
func (v *versions) all() iter.Seq2[[]byte, []byte] {
	return func(yield func(name, version []byte) bool) {
		if v == nil {
			return
		}
		for b := v.request; len(b) > 0; {
			num, typ, n := protowire.ConsumeTag(b)
			b = b[n:]
			if num != deltaInitial || typ != protowire.BytesType {
				b = b[protowire.ConsumeFieldValue(num, typ, b):]
				continue
			}
			entry, n := protowire.ConsumeBytes(b)
			b = b[n:]
			name, version, _ := mapEntry(entry)
			if _, void := v.void[string(name)]; !void && !yield(name, version) {
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
		if _, ok := s.names[string(name)]; !ok && !s.wildcard {
			continue
		}
		if i, ok := index.places[string(name)]; ok {
			current.set(i, index.entries[i].Version == string(version))
		} else {
			removed = append(removed, string(name))
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
