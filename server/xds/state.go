package xds

import (
	"cmp"
	"iter"
	"slices"
	"sort"
	"sync"

	"tributary/internal/recent"
	"tributary/server/xds/wire"
)

// Entries are in pages of at most maxPage, in order of name. A commit copies only the pages that it changes and the
// list of pages: at 100,000 entries that is a list of about 2,000 pointers.
const (
	maxPage = 128
	minPage = 32
)

// state is the content of a collection after a commit. It is immutable.
type state struct {
	revision       uint64 // counts the commits of the collection; zero for a state of no commit
	commitRevision uint64 // Commit.Revision of the last commit
	version        string // the version that clients get
	given          bool   // the version is Commit.Version, and may have been used for other content before
	sum            setHash
	fingerprint    wire.Fingerprint
	replaced       []replaced // by the commit
	earlier        history    // of the latest commits
	len            int
	pages          []*page
	times          recent.Log // of the latest commits

	resumeIndex  weakCache[index]
	sinceNothing weakCache[diff]

	// of a state of interim versions: the state that follows, and the difference to it
	final   *state
	toFinal *diff

	mu      sync.Mutex
	diffs   map[uint64]*diff  // by the revision of the older state
	formers map[string]*state // by version; of those that clients came back with
}

// initialState is the state of a client before its first response.
var initialState = &state{}

// change puts an entry, or removes the name if entry is nil.
type change struct {
	name  string
	entry *Entry
}

// get returns the entry of name, or nil.
func (s *state) get(name string) *Entry {
	i := sort.Search(len(s.pages), func(i int) bool { return s.pages[i].first > name }) - 1
	if i < 0 {
		return nil
	}
	return s.pages[i].get(name)
}

// entries yields the entries in order of name.
func (s *state) entries() iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		for _, p := range s.pages {
			for _, e := range p.entries {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// withPuts returns the state with more entries.
func (s *state) withPuts(entries []*Entry) *state {
	changes := make([]change, len(entries))
	for i, e := range entries {
		changes[i] = change{e.Name, e}
	}
	return s.derive(changes)
}

// derive returns the state with changes. It belongs to no commit: differences from it are not remembered.
func (s *state) derive(changes []change) *state {
	next := s.apply(changes)
	if next != s {
		next.revision = 0
	}
	return next
}

// only returns the state with only the entries of names.
func (s *state) only(names map[string]struct{}) *state {
	if s.len == 0 {
		return s
	}
	var selected []*Entry
	for name := range names {
		if e := s.get(name); e != nil {
			selected = append(selected, e)
		}
	}
	return initialState.withPuts(selected)
}

// apply returns the state after changes. Of several changes of one name, the last counts. It returns s itself without a
// change. The revision is the next one, and the version is derived from the content.
func (s *state) apply(changes []change) *state {
	changes = slices.Clone(changes)
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.name, b.name) })
	next := &state{
		revision: s.revision + 1, sum: s.sum, fingerprint: s.fingerprint, len: s.len,
		commitRevision: s.commitRevision,
	}
	next.pages = make([]*page, 0, len(s.pages)+1+len(changes)/(maxPage/2))
	changed := false
	rest := s.pages
	for len(changes) > 0 {
		// Skip to the page that the first change belongs to, and take all changes below the page after it.
		i := max(sort.Search(len(rest), func(i int) bool { return rest[i].first > changes[0].name })-1, 0)
		next.pages = append(next.pages, rest[:i]...)
		rest = rest[i:]
		count := len(changes)
		if len(rest) > 1 {
			limit := rest[1].first
			count = sort.Search(count, func(k int) bool { return changes[k].name >= limit })
		}
		var pageEntries []*Entry
		if len(rest) > 0 {
			pageEntries = rest[0].entries
		}
		if entries, ok := next.merge(pageEntries, changes[:count]); ok {
			changed = true
			next.appendPages(entries)
		} else if len(rest) > 0 {
			next.pages = append(next.pages, rest[0])
		}
		changes = changes[count:]
		if len(rest) > 0 {
			rest = rest[1:]
		}
	}
	next.pages = append(next.pages, rest...)
	if !changed {
		return s
	}
	next.version = next.sum.String()
	return next
}

// merge applies sorted changes to the entries of a page. It updates sum, fingerprint and length of s, and reports
// whether a change had an effect.
func (s *state) merge(entries []*Entry, changes []change) (merged []*Entry, changed bool) {
	merged = make([]*Entry, 0, len(entries)+len(changes))
	for i, edit := range changes {
		if i+1 < len(changes) && changes[i+1].name == edit.name {
			continue // a later change of the same name counts
		}
		k := sort.Search(len(entries), func(k int) bool { return entries[k].Name >= edit.name })
		merged = append(merged, entries[:k]...)
		entries = entries[k:]
		var before *Entry
		if len(entries) > 0 && entries[0].Name == edit.name {
			before, entries = entries[0], entries[1:]
		}
		switch {
		case before == nil && edit.entry == nil:
		case before != nil && edit.entry != nil && before.Version == edit.entry.Version:
			merged = append(merged, before)
		default:
			changed = true
			former := replaced{name: edit.name}
			if before != nil {
				former.version = before.Version
				former.entry = before
				s.sum = s.sum.minus(before.hash())
				s.fingerprint = s.fingerprint.Minus(before.Name, before.Version)
				s.len--
			}
			if edit.entry != nil {
				s.sum = s.sum.plus(edit.entry.hash())
				s.fingerprint = s.fingerprint.Plus(edit.entry.Name, edit.entry.Version)
				s.len++
				merged = append(merged, edit.entry)
			}
			if len(s.replaced) <= maxReplaced {
				s.replaced = append(s.replaced, former)
			}
		}
	}
	return append(merged, entries...), changed
}

// appendPages appends entries as pages of fair size; few entries join the page before them.
func (s *state) appendPages(entries []*Entry) {
	if last := len(s.pages) - 1; last >= 0 && len(entries) < minPage &&
		len(s.pages[last].entries)+len(entries) <= maxPage {
		entries = slices.Concat(s.pages[last].entries, entries)
		s.pages = s.pages[:last]
	}
	if len(entries) == 0 {
		return
	}
	count := (len(entries) + maxPage - 1) / maxPage
	if count > 1 { // leave room to grow
		count = (len(entries) + maxPage/2 - 1) / (maxPage / 2)
	}
	size := (len(entries) + count - 1) / count
	for chunk := range slices.Chunk(entries, size) {
		s.pages = append(s.pages, &page{first: chunk[0].Name, entries: slices.Clip(chunk)})
	}
}
