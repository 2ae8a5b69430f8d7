package history

import (
	"iter"
	"math"
	"slices"
	"time"

	"tributary/resource"
)

// records yields the records of segments in order. A segment that was deleted meanwhile to make room has none. If the
// last records are damaged, it yields a mark of a gap behind them.
func (h *History) records(segments []segment) iter.Seq[*record] {
	return func(yield func(*record) bool) {
		var damaged time.Time // of the first report
		for _, segment := range segments {
			path := h.files.path(segment.number, segmentSuffix)
			for payload, err := range readFrames(path, segment.size) {
				next := &record{segment: segment.number, damaged: !damaged.IsZero()}
				if err == nil {
					err = next.decode(payload)
				}
				if err == nil {
					damaged = time.Time{}
					if !yield(next) {
						return
					}
				} else if int64(segment.number) >= h.files.oldest.Load() {
					damaged = h.damaged(path, err)
				}
			}
		}
		if !damaged.IsZero() {
			yield(&record{header: header{Entry{Time: damaged}, markGap}, segment: math.MaxInt, damaged: true})
		}
	}
}

// gap reports whether changes before a record are missing.
func (r *record) gap() bool { return r.damaged || r.Mark == markGap }

// completeSince returns the time since which a history is complete, from the time by earlier records.
func (r *record) completeSince(earlier time.Time) time.Time {
	if r.gap() || earlier.IsZero() && r.Mark == markBegin {
		return r.Time
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
		!entry.Time.Before(q.Since)
}

// Answer is the answer to a query.
type Answer struct {
	From    time.Time `json:"from,omitzero"`     // the history is complete since then
	Waiting bool      `json:"waiting,omitempty"` // objects are not recorded before all sources were read
	Entries []*Entry  `json:"entries"`           // in order of time
	Earlier int       `json:"earlier"`           // entries beyond the limit
}

// newest sorts records by time, since events may be recorded late, and cuts them to the newest.
func (a *Answer) newest(records []*record, limit int) []*record {
	slices.SortStableFunc(records, func(a, b *record) int { return a.Time.Compare(b.Time) })
	if earlier := len(records) - limit; limit > 0 && earlier > 0 {
		a.Earlier += earlier
		records = slices.Clone(records[earlier:])
	}
	return records
}

// Find returns the selected entries.
func (h *History) Find(query Query) (*Answer, error) {
	state := h.readable.Load()
	answer := &Answer{Waiting: !state.begun, Entries: []*Entry{}}
	var selected []*record
	for record := range h.records(state.segments) {
		answer.From = record.completeSince(answer.From)
		if record.Mark != "" || !query.selects(&record.Entry) {
			continue
		}
		if !query.Details {
			record.packed = nil
		}
		if selected = append(selected, record); query.Limit > 0 && len(selected) >= 2*query.Limit {
			selected = answer.newest(selected, query.Limit)
		}
	}
	for _, record := range answer.newest(selected, query.Limit) {
		entry, err := record.entry()
		if err != nil {
			return nil, err
		}
		answer.Entries = append(answer.Entries, entry)
	}
	return answer, nil
}

// State is the set of objects that were served at a time.
type State struct {
	Time    time.Time `json:"at"`
	Objects []*Object `json:"objects"`           // in order of key
	Unknown []string  `json:"unknown,omitempty"` // objects whose content at that time is not recorded
}

// ServedAt returns the objects of a kind, or of all kinds, that were served at a time: the present objects, with each
// changed one as it was before its first later change. The error is an *EarlierError if the records do not reach back
// to the time.
func (h *History) ServedAt(moment time.Time, kind resource.Kind) (*State, error) {
	state := h.readable.Load()
	switch {
	case !state.begun:
		return nil, &EarlierError{Requested: moment}
	case !state.gap.IsZero() && !moment.Before(state.gap):
		return nil, &EarlierError{Requested: moment, Gap: state.gap}
	}
	selects := func(key resource.Key) bool { return kind == "" || kind == key.Kind }
	changes := make(map[resource.Key]*Entry)
	var complete time.Time
	for record := range h.records(state.segments) {
		complete = record.completeSince(complete)
		key := record.Key()
		if !record.Time.After(moment) || key.Kind == "" || !selects(key) || changes[key] != nil {
			continue
		}
		entry, err := record.entry()
		if err != nil {
			return nil, err
		}
		changes[key] = entry
	}
	if complete.IsZero() || moment.Before(complete) {
		return nil, &EarlierError{Requested: moment, Complete: complete}
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
