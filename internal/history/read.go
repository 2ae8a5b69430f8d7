package history

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"slices"
	"time"

	"tributary/internal/disk"
	"tributary/resource"
)

// read yields the records of segments in order, and marks of gaps where records are damaged or gone. A segment that was dropped meanwhile
// has none. If the damage is at the end of a segment, the mark with which the next segment begins is that of the gap.
func (h *History) read(all []segment) iter.Seq2[*record, error] {
	return func(yield func(*record, error) bool) {
		gap := time.Time{} // since when there is one
		for i, seg := range all {
			if i > 0 && all[i-1].number+1 < seg.number || i > 0 && all[i-1].damaged {
				gap = h.opened
			}
			path := h.files.path(seg.number, segmentSuffix)
			within := false // the gap is in this segment
			for r, err := range readSegment(path, seg) {
				switch {
				case errors.Is(err, fs.ErrNotExist) && int64(seg.number) < h.files.oldest.Load(): // it was dropped
					continue
				case isDamage(err):
					gap, within = h.damaged(path, err), true
					continue
				case err != nil:
					yield(nil, fmt.Errorf("history: %w", err))
					return
				case !gap.IsZero() && r.Mark == markBegin:
					r.Mark, gap = markGap, time.Time{}
				case within:
					if within, gap = false, (time.Time{}); !yield(gapAt(r.At), nil) {
						return
					}
				}
				if !yield(r, nil) {
					return
				}
			}
		}
		if n := len(all); n > 0 && all[n-1].damaged {
			gap = h.opened
		}
		if !gap.IsZero() {
			yield(gapAt(gap), nil)
		}
	}
}

func gapAt(at time.Time) *record { return &record{head: head{Entry{At: at}, mark{markGap}}} }

// isDamage reports whether err says that a file, or a part of it, is damaged or gone.
func isDamage(err error) bool {
	_, damaged := errors.AsType[*disk.Damage](err)
	return damaged || errors.Is(err, fs.ErrNotExist) || errors.Is(err, disk.ErrShort) || errors.Is(err, errRecord)
}

// readSegment yields the records of a segment, and an error in the place of each that is damaged.
func readSegment(path string, seg segment) iter.Seq2[*record, error] {
	return func(yield func(*record, error) bool) {
		file, err := os.Open(path)
		if err != nil {
			yield(nil, err)
			return
		}
		defer file.Close() //nolint:errcheck // it was only read
		for in := disk.NewReader(file, seg.size); in.At() < seg.size; {
			var r record
			payload, err := in.Next()
			if err == nil {
				r, err = decode(payload)
			}
			ended := errors.Is(err, io.EOF)
			if ended {
				err = disk.ErrShort
			}
			if !yield(&r, err) || ended || err != nil && !isDamage(err) {
				return
			}
		}
	}
}

// Query says which changes are meant. What is empty is for all.
type Query struct {
	Kind            resource.Kind
	Namespace, Name string
	Source          string
	Since           time.Time
	Limit           int  // only the newest of them; 0 for all
	Details         bool // with what the objects were
}

func (q *Query) means(e *Entry) bool {
	return (q.Kind == "" || q.Kind == e.Kind) && (q.Namespace == "" || q.Namespace == e.Namespace) && (q.Name == "" || q.Name == e.Name) &&
		(q.Source == "" || q.Source == e.Source) && !e.At.Before(q.Since)
}

// Answer is what the history has.
type Answer struct {
	From    time.Time `json:"from,omitzero"`     // since when it is whole
	Waiting bool      `json:"waiting,omitempty"` // objects are not recorded yet, since not all sources were read
	Entries []*Entry  `json:"entries"`           // in order of time
	Earlier int       `json:"earlier"`           // that the limit leaves out
}

// Find returns the changes that are meant.
func (h *History) Find(q Query) (*Answer, error) {
	state := h.state.Load()
	a := &Answer{Waiting: !state.begun, Entries: []*Entry{}}
	var found []*record
	byTime := func(a, b *record) int { return a.At.Compare(b.At) } // an event may be written behind a change that came after it
	for r, err := range h.read(state.segments) {
		if err != nil {
			return nil, err
		}
		a.From = from(a.From, r)
		if r.Mark != "" && r.Mark != markEvent || !q.means(&r.Entry) {
			continue
		}
		if !q.Details {
			r.packed = nil
		}
		if found = append(found, r); q.Limit > 0 && len(found) >= 2*q.Limit {
			slices.SortStableFunc(found, byTime)
			a.Earlier += len(found) - q.Limit
			found = slices.Clone(found[len(found)-q.Limit:])
		}
	}
	slices.SortStableFunc(found, byTime)
	if over := len(found) - q.Limit; q.Limit > 0 && over > 0 {
		a.Earlier += over
		found = found[over:]
	}
	for _, r := range found {
		e, err := r.entry()
		if err != nil {
			return nil, err
		}
		a.Entries = append(a.Entries, e)
	}
	return a, nil
}

// from is since when the history is whole, by the marks that were read.
func from(before time.Time, r *record) time.Time {
	if r.Mark == markGap || before.IsZero() && r.Mark == markBegin {
		return r.At
	}
	return before
}

// State is what was served at a time.
type State struct {
	At      time.Time `json:"at"`
	Objects []*Object `json:"objects"`           // in order of key
	Unknown []string  `json:"unknown,omitempty"` // objects that changed later while no process wrote the history: what they were is not known
}

// At returns the objects of a kind, or of all, that were served at a time. The error is an *EarlierError if nobody knows.
func (h *History) At(at time.Time, kind resource.Kind) (*State, error) {
	state := *h.state.Load()
	if !state.begun {
		return nil, &EarlierError{Asked: at}
	}
	if since := state.gap.since; !since.IsZero() {
		if !at.Before(since) {
			return nil, &EarlierError{Asked: at, Gap: since}
		}
		state.now = state.gap.before
	}
	was := make(map[resource.Key]*Object)
	later := make(map[resource.Key]bool) // was is from a change after at
	unknown := make(map[resource.Key]bool)
	var begin time.Time
	for r, err := range h.read(state.segments) {
		if err != nil {
			return nil, err
		}
		begin = from(begin, r)
		if r.Mark == markGap { // what was before may have changed in it, and nobody is told of a time before it
			clear(was)
			clear(later)
			clear(unknown)
		}
		if r.Mark != "" || kind != "" && r.Kind != kind {
			continue
		}
		key := r.Key()
		if after := r.At.After(at); after {
			if _, told := was[key]; told {
				continue
			}
			later[key], unknown[key] = true, r.Unknown
		} else {
			delete(unknown, key)
		}
		e, err := r.entry()
		if err != nil {
			return nil, err
		}
		was[key] = e.New
		if later[key] {
			was[key] = e.Old
		}
	}
	if begin.IsZero() || at.Before(begin) {
		return nil, &EarlierError{Asked: at, From: begin}
	}
	s := &State{At: at, Objects: []*Object{}}
	for r := range state.now.All() {
		if _, told := was[r.Key()]; !told && (kind == "" || r.Key().Kind == kind) {
			s.Objects = append(s.Objects, ObjectOf(r))
		}
	}
	for key, o := range was {
		switch {
		case unknown[key]:
			s.Unknown = append(s.Unknown, key.String())
		case o != nil:
			s.Objects = append(s.Objects, o)
		}
	}
	slices.Sort(s.Unknown)
	slices.SortFunc(s.Objects, func(a, b *Object) int { return a.Key().Compare(b.Key()) })
	return s, nil
}
