package xds

import (
	"slices"
	"sync"
)

// diff is the difference between two states. It is immutable, and all streams that go from the first to the second
// share it.
type diff struct {
	puts    []*Entry // added or changed, in order of name
	removed []*Entry // as they were
	entire  bool     // puts has all entries of the state

	delta weakCache[deltas]
	// additions returns the state with the puts but not yet the removals, and the difference to it.
	additions func() (*state, *diff)

	preannouncement preannouncement
}

var noDiff = &diff{}

// additionsFirst returns the state with the puts of d but not yet the removals, and the difference to it. d leads to
// the state to.
func (d *diff) additionsFirst(to *state) (*state, *diff) {
	if len(d.removed) == 0 {
		return to, d
	}
	return d.additions()
}

// withRemoved returns a difference with the puts of d that removes entries; d if there are none.
func (d *diff) withRemoved(removed []*Entry) *diff {
	if len(removed) == 0 {
		return d
	}
	return &diff{puts: d.puts, removed: removed}
}

// deltas are the puts of a difference, encoded for delta streams.
type deltas struct {
	*run
	wildcard []*body // for streams that are subscribed to everything
}

// deltas returns the difference encoded for delta streams.
func (d *diff) deltas() *deltas {
	return d.delta.get(func() *deltas {
		run := encodeRun(d.puts, formDelta)
		bodies := run.bodies([]span{{0, len(d.puts)}}, names(d.removed))
		for _, body := range bodies {
			for _, part := range body.parts {
				part.zip = &zip{}
			}
		}
		return &deltas{run, bodies}
	})
}

// maxDiffs bounds the differences to it that a state remembers.
const maxDiffs = 16

// differenceFrom returns the difference from an older state of the same collection to s.
func (s *state) differenceFrom(from *state) *diff {
	switch {
	case from == s:
		return noDiff
	case from.final == s:
		return from.toFinal
	case from.len == 0:
		return s.sinceNothing.get(func() *diff {
			return &diff{
				puts:   slices.AppendSeq(make([]*Entry, 0, s.len), s.entries()),
				entire: true,
			}
		})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if difference := s.diffs[from.revision]; difference != nil {
		return difference
	}
	puts, removed := compare(from, s)
	difference := &diff{puts: puts, removed: removed}
	difference.additions = sync.OnceValues(func() (*state, *diff) {
		return s.withPuts(removed), &diff{puts: puts}
	})
	if from.revision != 0 {
		if len(s.diffs) >= maxDiffs {
			clear(s.diffs)
		}
		put(&s.diffs, from.revision, difference)
	}
	return difference
}

// compare walks two states side by side. It skips the pages that they share, at the cost of one pointer comparison
// each.
func compare(from, to *state) (puts, removed []*Entry) {
	older, newer := cursor{pages: from.pages}, cursor{pages: to.pages}
	for {
		for older.position == 0 && newer.position == 0 && !older.end() && !newer.end() && older.pages[0] == newer.pages[0] {
			older.pages = older.pages[1:]
			newer.pages = newer.pages[1:]
		}
		switch {
		case older.end() && newer.end():
			return puts, removed
		case !older.end() && !newer.end() && older.entry() == newer.entry(): // most of a changed page
			older.next()
			newer.next()
		case newer.end() || !older.end() && older.entry().Name < newer.entry().Name:
			removed = append(removed, older.next())
		case older.end() || older.entry().Name > newer.entry().Name:
			puts = append(puts, newer.next())
		default:
			if old, entry := older.next(), newer.next(); old.Version != entry.Version {
				puts = append(puts, entry)
			}
		}
	}
}

// cursor is a position in a list of pages.
type cursor struct {
	pages    []*page
	position int
}

func (c *cursor) end() bool     { return len(c.pages) == 0 }
func (c *cursor) entry() *Entry { return c.pages[0].entries[c.position] }

func (c *cursor) next() *Entry {
	entry := c.entry()
	if c.position++; c.position == len(c.pages[0].entries) {
		c.pages = c.pages[1:]
		c.position = 0
	}
	return entry
}

func names(entries []*Entry) []string {
	if len(entries) == 0 {
		return nil
	}
	list := make([]string, len(entries))
	for i, entry := range entries {
		list[i] = entry.Name
	}
	return list
}
