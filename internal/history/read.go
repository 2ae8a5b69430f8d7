package history

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"time"

	"tributary/resource"
)

// read yields the records of segments in order. A segment that was dropped meanwhile has none.
func read(dir string, all []segment) iter.Seq2[*record, error] {
	return func(yield func(*record, error) bool) {
		for _, seg := range all {
			if more, err := readSegment(dir, seg, yield); err != nil || !more {
				if err != nil {
					yield(nil, fmt.Errorf("history: %w", err))
				}
				return
			}
		}
	}
}

func readSegment(dir string, seg segment, yield func(*record, error) bool) (more bool, err error) {
	file, err := os.Open(filepath.Join(dir, fmt.Sprintf("%010d%s", seg.number, segmentSuffix)))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close() //nolint:errcheck // it was only read
	in := bufio.NewReaderSize(io.LimitReader(file, seg.size), 1<<16)
	for {
		payload, err := readFrame(in, maxRecord)
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("%s: %w", file.Name(), err)
		}
		r, err := decode(payload)
		if err != nil {
			return false, fmt.Errorf("%s: %w", file.Name(), err)
		}
		if !yield(&r, nil) {
			return false, nil
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
	From    time.Time `json:"from"`    // since when it is whole
	Entries []*Entry  `json:"entries"` // in order of time
	Earlier int       `json:"earlier"` // that the limit leaves out
}

// Find returns the changes that are meant.
func (h *History) Find(q Query) (*Answer, error) {
	state := h.state.Load()
	a := &Answer{Entries: []*Entry{}}
	var found []*record
	for r, err := range read(h.files.dir, state.segments) {
		if err != nil {
			return nil, err
		}
		a.From = from(a.From, r)
		if r.Mark != "" || !q.means(&r.Entry) {
			continue
		}
		if !q.Details {
			r.packed = nil
		}
		if found = append(found, r); q.Limit > 0 && len(found) >= 2*q.Limit {
			a.Earlier += len(found) - q.Limit
			found = slices.Clone(found[len(found)-q.Limit:])
		}
	}
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
	state := h.state.Load()
	was := make(map[resource.Key]*Object)
	later := make(map[resource.Key]bool) // was is from a change after at
	unknown := make(map[resource.Key]bool)
	var begin time.Time
	for r, err := range read(h.files.dir, state.segments) {
		if err != nil {
			return nil, err
		}
		begin = from(begin, r)
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
		return nil, &EarlierError{at, begin}
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
	slices.SortFunc(s.Objects, func(a, b *Object) int { return a.key().Compare(b.key()) })
	return s, nil
}

func (o *Object) key() resource.Key {
	return resource.Key{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}
}
