package xds

import (
	"cmp"
	"hash/maphash"
	"iter"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// versions are the initial_resource_versions of a request, of which a client that resumes may bring along a hundred
// thousand. They stay encoded, so that a name costs nothing of its own.
type versions struct {
	request []byte // that has them; it was decoded without an error
}

// all yields names and versions as they were given. Of a name that is given twice the last counts.
func (v *versions) all() iter.Seq2[[]byte, []byte] {
	return func(yield func(name, version []byte) bool) {
		for b := v.request; len(b) > 0; {
			entry, rest, ok := nextInitial(b)
			if b = rest; !ok {
				continue
			}
			if name, version, _ := mapEntry(entry); !yield(name, version) {
				return
			}
		}
	}
}

// nextInitial cuts the first field off a request that was decoded without an error, and reports whether it is an entry of
// initial_resource_versions.
func nextInitial(b []byte) (entry, rest []byte, ok bool) {
	const tag = deltaInitial<<3 | byte(protowire.BytesType)
	if b[0] == tag && b[1] < 0x80 { // nearly all are this short
		end := 2 + int(b[1])
		return b[2:end], b[end:], true
	}
	num, typ, n := protowire.ConsumeTag(b)
	b = b[n:]
	if num != deltaInitial || typ != protowire.BytesType {
		return nil, b[protowire.ConsumeFieldValue(num, typ, b):], false
	}
	entry, n = protowire.ConsumeBytes(b)
	return entry, b[n:], true
}

// index finds the entries of a state by hash of name and version. It is made when clients resume, and shared by those
// that resume to the same state. Were there a map, most of the time would go into fetching names and versions from memory.
type index struct {
	entries []*Entry // in order of name
	seed    maphash.Seed
	hashes  []uint64 // open addressing, a power of two in size; 0 is free
	places  []int32  // of each hash in entries
}

func (s *state) index() *index {
	return s.byName.get(func() *index {
		size := 1
		for size < 2*s.len+1 {
			size *= 2
		}
		x := &index{
			entries: make([]*Entry, 0, s.len), seed: maphash.MakeSeed(),
			hashes: make([]uint64, size), places: make([]int32, size),
		}
		for e := range s.all() {
			h := x.hash([]byte(e.Name), []byte(e.Version))
			i := h & uint64(size-1)
			for x.hashes[i] != 0 {
				i = (i + 1) & uint64(size-1)
			}
			x.hashes[i], x.places[i] = h, int32(len(x.entries)) //nolint:gosec // there is no memory for so many
			x.entries = append(x.entries, e)
		}
		return x
	})
}

func (x *index) hash(name, version []byte) uint64 {
	return max(maphash.Bytes(x.seed, name)*31+maphash.Bytes(x.seed, version), 1)
}

// find returns the place of the entry of name in version, if there is one. It goes by 64 bits of a hash that no client can
// know: to be wrong about one of 100,000 entries takes a trillion clients that resume.
func (x *index) find(name, version []byte) (place int, ok bool) {
	h, mask := x.hash(name, version), uint64(len(x.hashes)-1)
	for i := h & mask; x.hashes[i] != 0; i = (i + 1) & mask {
		if x.hashes[i] == h {
			return int(x.places[i]), true
		}
	}
	return 0, false
}

// search returns the place of the entry of name, in whatever version, if there is one.
func (x *index) search(name []byte) (place int, ok bool) {
	return slices.BinarySearchFunc(x.entries, name, func(e *Entry, name []byte) int { return cmp.Compare(e.Name, string(name)) })
}

// said yields what the client said it had, apart from what it lacks all the same.
func (h *holding) said() iter.Seq2[[]byte, []byte] {
	if len(h.lacks) == 0 {
		return h.brought.all()
	}
	return func(yield func(name, version []byte) bool) {
		for name, version := range h.brought.all() {
			if _, lacks := h.lacks[string(name)]; !lacks && !yield(name, version) {
				return
			}
		}
	}
}

// compareAll returns what a client that wants everything has yet to be sent, and what it has that is gone, both in order of
// name. Of the latter only names and versions are known.
func (h *holding) compareAll(to *state) (puts, gone []*Entry) {
	index := to.index()
	current := make([]bool, to.len) // what the client has as it is
	for name, version := range h.said() {
		if place, ok := index.find(name, version); ok {
			_, stale := h.stale[string(name)]
			current[place] = !stale && !h.again
		} else if place, ok := index.search(name); ok {
			current[place] = false // it may have been given twice
		} else {
			gone = append(gone, &Entry{Name: string(name), Version: string(version)})
		}
	}
	for i, e := range index.entries {
		if !current[i] {
			puts = append(puts, e)
		}
	}
	sortEntries(gone)
	return puts, slices.CompactFunc(gone, func(a, b *Entry) bool { return a.Name == b.Name })
}

// compareNames is compareAll for a client that wants names.
func (h *holding) compareNames(w *wants, to *state) (puts, gone []*Entry) {
	have := make(map[string]string)
	for name, version := range h.said() {
		if _, ok := w.names[string(name)]; ok {
			have[string(name)] = string(version)
		}
	}
	for name := range w.names {
		version, had := have[name]
		_, stale := h.stale[name]
		if e := to.get(name); e != nil && (version != e.Version || stale) {
			puts = append(puts, e)
		} else if e == nil && had {
			gone = append(gone, &Entry{Name: name, Version: version})
		}
	}
	sortEntries(puts)
	sortEntries(gone)
	return puts, gone
}
