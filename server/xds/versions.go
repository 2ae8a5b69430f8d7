package xds

import (
	"hash/maphash"
	"slices"

	"tributary/server/xds/wire"

	"google.golang.org/grpc/codes"
)

// index finds the entries of a state by a hash of name and version as clients encode them. Clients that resume to the
// same state share it. A map, or a comparison of names, would spend most of the time on fetching names from memory.
type index struct {
	entries []*Entry // in order of name
	slots   []int32  // of each entry in hashes
	seed    maphash.Seed
	hashes  []uint64 // open addressing, a power of two in size; 0 is free
}

func (s *state) index() *index {
	return s.resumeIndex.get(func() *index {
		size := 1
		for size < 2*s.len+1 {
			size *= 2
		}
		result := &index{
			entries: make([]*Entry, 0, s.len), slots: make([]int32, 0, s.len),
			seed: maphash.MakeSeed(), hashes: make([]uint64, size),
		}
		var buf []byte
		for entry := range s.entries() {
			buf = wire.AppendMapEntry(buf[:0], entry.Name, entry.Version)
			hash := result.hash(buf)
			i := hash & uint64(size-1)
			for result.hashes[i] != 0 {
				i = (i + 1) & uint64(size-1)
			}
			result.hashes[i] = hash
			result.entries = append(result.entries, entry)
			result.slots = append(result.slots, int32(i)) //nolint:gosec // there is no memory for so many
		}
		return result
	})
}

func (x *index) hash(entry []byte) uint64 { return max(maphash.Bytes(x.seed, entry), 1) }

// find returns the slot of an encoded name and version, if the state has both. It compares 64 bits of a hash with a
// secret seed: one error about 100,000 entries takes a trillion clients that resume.
func (x *index) find(entry []byte) (slot int, ok bool) {
	h, mask := x.hash(entry), uint64(len(x.hashes)-1)
	for i := h & mask; x.hashes[i] != 0; i = (i + 1) & mask {
		if x.hashes[i] == h {
			return int(i), true //nolint:gosec // a place in hashes
		}
	}
	return 0, false
}

// search returns the entry of name in any version, and its slot, or nil.
func (x *index) search(name string) (e *Entry, slot int32) {
	i, ok := slices.BinarySearchFunc(x.entries, name, compareName)
	if !ok {
		return nil, 0
	}
	return x.entries[i], x.slots[i]
}

// compareAll returns the entries that a client with a wildcard must be sent, in order of name, and the names and
// versions of its resources that no longer exist.
func (c *clientState) compareAll(goal *state) (puts []*Entry, removed map[string]string) {
	if former, ok := goal.replacedSince(c.brought.Fingerprint); ok && !c.resendAll {
		return c.compareReplaced(former, goal)
	}
	index := goal.index()
	removed = make(map[string]string)
	current := make([]bool, len(index.hashes)) // by slot: the client has this version
	for entry := range c.brought.Entries() {
		if slot, ok := index.find(entry); ok {
			current[slot] = true
			continue
		}
		name, version, _ := wire.MapEntry(entry)
		if e, slot := index.search(string(name)); e != nil {
			current[slot] = e.Version == string(version) // sent twice, or in another encoding
		} else {
			removed[string(name)] = string(version)
		}
	}
	for e := range c.mandatory(goal) {
		_, slot := index.search(e.Name)
		current[slot] = false
	}
	for i, e := range index.entries {
		if c.resendAll || !current[index.slots[i]] {
			puts = append(puts, e)
		}
	}
	return puts, removed
}

// compareReplaced is compareAll for a client with an earlier state. former has the names replaced since then, with
// their versions in that state.
func (c *clientState) compareReplaced(
	former map[string]string, goal *state,
) (puts []*Entry, removed map[string]string) {
	removed = make(map[string]string)
	for name, version := range former {
		if e := goal.get(name); e != nil && e.Version != version {
			puts = append(puts, e)
		} else if e == nil && version != "" {
			removed[name] = version
		}
	}
	for e := range c.mandatory(goal) {
		if version, replaced := former[e.Name]; !replaced || version == e.Version { // else it is in puts
			puts = append(puts, e)
		}
	}
	sortEntries(puts)
	return puts, removed
}

// replacedAmong returns the names replaced since the client had exactly the wanted resources, with their versions at
// that time. ok reports whether the history has that state. existing has the wanted entries of the state.
func (c *clientState) replacedAmong(wanted *subscriptionNames, existing []*Entry, goal *state) (
	former map[string]string, ok bool,
) {
	var fingerprint wire.Fingerprint
	for _, e := range existing {
		fingerprint = fingerprint.Plus(e.Name, e.Version)
	}
	for _, commit := range slices.Backward(goal.earlier) {
		if fingerprint == c.brought.Fingerprint {
			break
		}
		for _, replacement := range commit.replaced {
			if !wanted.includes(replacement.name) {
				continue
			}
			version, replaced := former[replacement.name]
			if e := goal.get(replacement.name); !replaced && e != nil {
				version = e.Version
			}
			if version != "" {
				fingerprint = fingerprint.Minus(replacement.name, version)
			}
			if replacement.version != "" {
				fingerprint = fingerprint.Plus(replacement.name, replacement.version)
			}
			put(&former, replacement.name, replacement.version)
		}
	}
	return former, fingerprint == c.brought.Fingerprint
}

// compareNames is compareAll for a client that subscribes by name. existing has the wanted entries of the state.
func (c *clientState) compareNames(wanted *subscriptionNames, existing []*Entry, goal *state) (
	puts []*Entry, removed map[string]string,
) {
	if former, ok := c.replacedAmong(wanted, existing, goal); ok && len(c.notHeld) == 0 {
		return c.compareReplaced(former, goal)
	}
	held, removed := make(map[string]string), make(map[string]string)
	for entry := range c.brought.Entries() {
		name, version, _ := wire.MapEntry(entry)
		_, notHeld := c.notHeld[string(name)]
		if _, ok := wanted.names[string(name)]; ok && !notHeld {
			held[string(name)] = string(version)
		}
	}
	for name := range wanted.names {
		version, isHeld := held[name]
		_, resend := c.resend[name]
		if e := goal.get(name); e != nil && (version != e.Version || resend) {
			puts = append(puts, e)
		} else if e == nil && isHeld {
			removed[name] = version
		}
	}
	sortEntries(puts)
	return puts, removed
}

// retained has the data of a subscription's first request that must outlive the request: the versions, until they are
// compared.
type retained struct {
	release  func()         // ends the reservation of its memory; nil if it has none
	versions *wire.Versions // or nil
	bytes    int            // without a reservation
}

// free releases the retained data; s.mu is held.
func (r *retained) free(owner *stream) {
	if r.release != nil {
		r.release()
	}
	r.versions.Free()
	owner.unreservedBytes -= r.bytes
	*r = retained{}
}

// maxUnreserved bounds stream.unreservedBytes.
const maxUnreserved = 1 << 20

// retain hands the versions of a request, and the reservation of their memory, to the subscription that the request
// began. Without one, it frees them.
func (s *stream) retain(request *wire.Request) error {
	if request.Release == nil && request.Initial == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	reserved := retained{release: request.Release, versions: request.Initial}
	if request.Release == nil {
		reserved.bytes = request.Size
	}
	s.unreservedBytes += reserved.bytes
	for _, sub := range s.subs {
		if !s.closed && request.Initial != nil && sub.client.brought == request.Initial {
			sub.retained = reserved
			if s.unreservedBytes > maxUnreserved {
				return s.server.refuse(refusedRequestMemory, codes.ResourceExhausted,
					"resume versions in small requests take %d bytes: the limit is %d", s.unreservedBytes, maxUnreserved)
			}
			return nil
		}
	}
	reserved.free(s)
	return nil
}

// freeCompared frees the versions that were compared.
func (s *stream) freeCompared() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sub := range s.subs {
		if sub.retained.versions != nil && sub.client.brought == nil {
			sub.retained.free(s)
		}
	}
}

// history is the latest commits, the oldest first. The states of a collection share its memory.
type history []past

// past is a commit: the state before it, and the entries that it replaced there.
type past struct {
	fingerprint wire.Fingerprint
	version     string // empty if it was given
	revision    uint64
	replaced    []replaced
}

// replaced is a changed name with its previous version, which is empty for a new name. Types that depend on others keep
// the entry.
type replaced struct {
	name, version string
	entry         *Entry
}

// A history has at most maxHistory commits, of at most maxReplaced names each.
const maxHistory, maxReplaced = 64, 100

// appendCommit returns the history after one more commit.
func (h history) appendCommit(from *state, replacements []replaced, keepEntries bool) history {
	if len(replacements) > maxReplaced {
		return nil
	}
	if len(h) == 2*maxHistory {
		h = append(make(history, 0, 2*maxHistory), h[maxHistory:]...)
	}
	before := past{fingerprint: from.fingerprint, revision: from.revision, replaced: replacements}
	if !from.given {
		before.version = from.version
	}
	for i := range replacements {
		if !keepEntries {
			replacements[i].entry = nil
		}
	}
	return append(h, before)
}

// former returns the state that had a version, or nil if it is unknown.
func (s *state) former(version string) *state {
	if version == s.version && !s.given {
		return s
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if former := s.formers[version]; former != nil {
		return former
	}
	for i, before := range slices.Backward(s.earlier) {
		if before.version != version {
			continue
		}
		var changes []change
		for _, commit := range slices.Backward(s.earlier[i:]) { // of changes of one name, the last counts
			for _, replaced := range commit.replaced {
				if replaced.version != "" && replaced.entry == nil {
					return initialState
				}
				changes = append(changes, change{replaced.name, replaced.entry})
			}
		}
		former := s.derive(changes)
		if former != s {
			former.revision = before.revision
		}
		put(&s.formers, version, former)
		return former
	}
	return initialState
}

// replacedSince returns the names replaced since the state with a fingerprint, with their versions in that state, and
// whether that state is known.
func (s *state) replacedSince(fingerprint wire.Fingerprint) (former map[string]string, ok bool) {
	if s.fingerprint == fingerprint {
		return nil, true
	}
	for i, before := range slices.Backward(s.earlier) {
		if before.fingerprint != fingerprint {
			continue
		}
		former = make(map[string]string)
		for _, p := range s.earlier[i:] {
			for _, r := range p.replaced {
				if _, exists := former[r.name]; !exists {
					former[r.name] = r.version
				}
			}
		}
		return former, true
	}
	return nil, false
}
