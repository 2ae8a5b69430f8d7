package history

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"time"

	"tributary/internal/disk"
	"tributary/resource"
)

// readFrames yields the frames in the first size bytes of a file, and an error in the place of each damaged part. The
// beginning of a frame at the end is no damage: a killed process leaves it.
func readFrames(path string, size int64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		file, err := os.Open(path)
		if err != nil {
			yield(nil, err)
			return
		}
		defer file.Close() //nolint:errcheck // it was only read
		for reader := disk.NewReader(file, size); reader.At() < size; {
			payload, err := reader.Next()
			damage, damaged := errors.AsType[*disk.Damage](err)
			if errors.Is(err, io.EOF) {
				err = disk.ErrShort
			}
			isTorn := damaged && damage.Torn
			if !isTorn && !yield(payload, err) {
				return
			}
			if err != nil && !damaged {
				return
			}
		}
	}
}

// records yields the records of segments in order. A segment that was deleted meanwhile to make room has none. If the
// last records are damaged, it yields a gap behind them.
func (h *History) records(segments []segment) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		var damaged time.Time // of the first report
		for _, segment := range segments {
			for payload, err := range readFrames(h.files.path(segment.number, segmentSuffix), segment.size) {
				entry := new(Entry)
				if err == nil {
					err = entry.decode(payload)
				}
				if err == nil {
					entry.gap = !damaged.IsZero() || entry.Event == "" && entry.Unknown
					damaged = time.Time{}
					if !yield(entry) {
						return
					}
				} else if int64(segment.number) >= h.files.oldest.Load() {
					damaged = h.damaged(segment.number, err)
				}
			}
		}
		if !damaged.IsZero() {
			yield(&Entry{Time: damaged, gap: true})
		}
	}
}

func (e *Entry) decode(payload []byte) error {
	text, packed, _ := bytes.Cut(payload, []byte("\n"))
	e.packed = packed
	return json.Unmarshal(text, e)
}

// unpack returns the objects of a record, and sets those of a change.
func (e *Entry) unpack() (objects []*Object, err error) {
	if len(e.packed) == 0 {
		return nil, nil
	}
	for decoder := json.NewDecoder(flate.NewReader(bytes.NewReader(e.packed))); err == nil; {
		var object *Object
		err = decoder.Decode(&object)
		objects = append(objects, object)
	}
	objects = objects[:len(objects)-1] // the last call has decoded none
	if !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("history of %s: %w", e.Key(), err)
	}
	if e.Event != "" && len(objects) == 2 {
		e.Old, e.New = objects[0], objects[1]
	}
	return objects, nil
}

// completeSince returns the start of the complete part of a history that ends with this record. earlier is the start by
// the records before it.
func (e *Entry) completeSince(earlier time.Time) time.Time {
	if e.gap || earlier.IsZero() && e.Event == "" {
		return e.Time
	}
	return earlier
}

// Query selects changes and events. An empty field selects all.
type Query struct {
	Kind            resource.Kind
	Namespace, Name string
	Source          string
	Since           time.Time
	Limit           int  // of the newest entries
	Details         bool // with the objects before and after
}

func (q *Query) selects(entry *Entry) bool {
	return (q.Kind == "" || q.Kind == entry.Kind) && (q.Namespace == "" || q.Namespace == entry.Namespace) &&
		(q.Name == "" || q.Name == entry.Name) && (q.Source == "" || q.Source == entry.Source) &&
		!entry.Time.Before(q.Since) && entry.Event != ""
}

// Answer is the answer to a query.
type Answer struct {
	From    time.Time `json:"from,omitzero"`     // the history is complete since then
	Waiting bool      `json:"waiting,omitempty"` // objects are not recorded before all sources were read
	Entries []*Entry  `json:"entries"`           // in order of time
	Earlier int       `json:"earlier"`           // entries beyond the limit
}

// cut sorts the entries by time, since events may be recorded late, and cuts them to the newest.
func (a *Answer) cut(limit int) {
	slices.SortStableFunc(a.Entries, func(a, b *Entry) int { return a.Time.Compare(b.Time) })
	if earlier := len(a.Entries) - limit; limit > 0 && earlier > 0 {
		a.Earlier += earlier
		a.Entries = slices.Delete(a.Entries, 0, earlier)
	}
}

// Find returns the selected entries.
func (h *History) Find(query Query) (*Answer, error) {
	state := h.readable.Load()
	answer := &Answer{Waiting: !state.begun, Entries: []*Entry{}}
	for entry := range h.records(state.segments) {
		answer.From = entry.completeSince(answer.From)
		if !query.selects(entry) {
			continue
		}
		if !query.Details {
			entry.packed = nil
		}
		answer.Entries = append(answer.Entries, entry)
		if query.Limit > 0 && len(answer.Entries) >= 2*query.Limit {
			answer.cut(query.Limit)
		}
	}
	answer.cut(query.Limit)
	for _, entry := range answer.Entries {
		if _, err := entry.unpack(); err != nil {
			return nil, err
		}
	}
	return answer, nil
}

// State is the set of objects that were served at a time.
type State struct {
	Time    time.Time `json:"at"`
	Objects []*Object `json:"objects"`           // in order of key
	Unknown []string  `json:"unknown,omitempty"` // objects without recorded content of that time
}

// ServedAt returns the objects of a kind, or of all kinds, that were served at a time: the present objects, but each
// object that changed later as it was before its first later change. The error is an *EarlierError if the records do
// not reach back to the time.
func (h *History) ServedAt(moment time.Time, kind resource.Kind) (*State, error) {
	state, requested := h.readable.Load(), moment.UTC().Format(time.RFC3339)
	switch {
	case !state.begun:
		return nil, &EarlierError{NotBegun}
	case !state.gap.IsZero() && !moment.Before(state.gap):
		return nil, &EarlierError{fmt.Sprintf("the history has a gap at %s: changes cannot be written to it since %s "+
			"(free space in its directory, see status)", requested, state.gap.Format(time.RFC3339))}
	}
	selects := func(key resource.Key) bool { return kind == "" || kind == key.Kind }
	changes := make(map[resource.Key]*Entry)
	var complete time.Time
	for change := range h.records(state.segments) {
		complete = change.completeSince(complete)
		key := change.Key()
		if !change.Time.After(moment) || key.Kind == "" || !selects(key) || changes[key] != nil {
			continue
		}
		if _, err := change.unpack(); err != nil {
			return nil, err
		}
		changes[key] = change
	}
	if complete.IsZero() || moment.Before(complete) {
		return nil, &EarlierError{fmt.Sprintf("the history does not reach back to %s: it is whole since %s", requested,
			complete.UTC().Format(time.RFC3339))}
	}
	result := &State{Time: moment, Objects: []*Object{}}
	for res := range state.served.All() {
		if selects(res.Key()) && changes[res.Key()] == nil {
			result.Objects = append(result.Objects, NewObject(res))
		}
	}
	for key, change := range changes {
		if change.Unknown {
			result.Unknown = append(result.Unknown, key.String())
		} else if change.Old != nil {
			result.Objects = append(result.Objects, change.Old)
		}
	}
	slices.Sort(result.Unknown)
	slices.SortFunc(result.Objects, func(a, b *Object) int { return a.Key().Compare(b.Key()) })
	return result, nil
}
