package history

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tributary/memstore"
)

// DefaultSize is the default limit of a history on disk. An update of a service takes about half a kilobyte, so this is
// a week of a change each five seconds.
const DefaultSize = 64 << 20

// LeastSize is the smallest limit of a history.
const LeastSize = 1 << 20

// maxEvents is the number of events that wait for Run.
const maxEvents = 1000

// History writes and reads one directory. Its methods but Run are safe for concurrent use.
type History struct {
	view     memstore.Reader
	log      *slog.Logger
	recorded prometheus.Counter
	lost     prometheus.Counter
	merged   prometheus.Counter
	spoiled  prometheus.Counter
	events   chan *Entry

	readable atomic.Pointer[state]
	health   health

	// owned by Run
	files  directory
	served memstore.Snapshot // recorded or lost
	begun  bool              // the files lead to served
	gap    time.Time         // of the first change that is missing: the next write begins with a base; or zero
	failed bool              // the last write
}

// state is a readable state of the segments.
type state struct {
	segments []segment
	served   memstore.Snapshot // to which they lead
	begun    bool
	gap      time.Time
}

// Open opens the history in a directory that no other process uses, with a limit in bytes.
func Open(
	name string, size int64, view memstore.Reader, log *slog.Logger, metrics prometheus.Registerer,
) (*History, error) {
	history := &History{
		view: view, log: log, files: directory{name: name, limit: size}, events: make(chan *Entry, maxEvents),
	}
	err := history.files.load()
	counter := func(name, help string) prometheus.Counter {
		counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "tributary_history_" + name, Help: help})
		err = errors.Join(err, metrics.Register(counter))
		return counter
	}
	history.recorded = counter("records_total", "Changes that were written to the history.")
	history.lost = counter("lost_total", "Changes that could not be written to the history.")
	history.merged = counter("merged_commits_total",
		"Commits that the history has as one with the next, since it could not keep up.")
	history.spoiled = counter("damaged_files_total",
		"Files of the history that were damaged or missing; their records are lost.")
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	history.publish()
	return history, nil
}

// publish shows readers the state. During a gap, they see the objects before it.
func (h *History) publish() {
	readable := &state{slices.Clone(h.files.segments), h.served, h.begun, h.gap}
	if !h.gap.IsZero() {
		readable.served = h.readable.Load().served
	}
	h.readable.Store(readable)
}

// Run records events, and changes from when the view is synced, until ctx ends. It logs errors and never returns one.
// It may be called again.
func (h *History) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		changed, synced := h.view.Changed(), h.view.Synced()
		if changes, snapshot := memstore.ChangesFrom(h.view, h.served); synced {
			h.update(changes, snapshot)
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case event := <-h.events:
			h.recordEvent(event)
		}
	}
	for len(h.events) > 0 {
		h.recordEvent(<-h.events)
	}
	if err := h.files.current.Close(); err != nil {
		h.log.Warn("the history is not closed", "err", err)
	}
	return nil
}

// Note queues an event of a source or, without one, of the program. It does not block.
func (h *History) Note(event, source, text string) {
	select {
	case h.events <- &Entry{Time: time.Now().UTC(), Event: event, Source: source, Text: text}:
	default:
		h.lost.Inc()
	}
}

func (h *History) recordEvent(event *Entry) {
	h.write(event.Time, slices.Values([]*Entry{event}))
	h.publish()
}

// update records the changes that lead to a snapshot of the view.
func (h *History) update(changes iter.Seq[memstore.Change], snapshot memstore.Snapshot) {
	now := time.Now().UTC()
	defer h.publish()
	if !h.begun {
		h.begin(snapshot, now)
		return
	}
	if commits := snapshot.Revision() - h.served.Revision(); commits > 1 {
		h.merged.Add(float64(commits - 1))
	}
	h.write(now, func(yield func(*Entry) bool) {
		for change := range changes {
			if !yield(newEntry(now, NewObject(change.Old), NewObject(change.New))) {
				return
			}
		}
	})
	h.served = snapshot
}

// write writes entries. If some are lost, the history has a gap until the next successful write, and no start compares
// objects across the gap.
func (h *History) write(now time.Time, entries iter.Seq[*Entry]) {
	err := h.prepare(now)
	lost := 0
	for entry := range entries {
		if err == nil {
			err = h.files.append(entry, "")
		}
		if err == nil {
			h.recorded.Inc()
		} else {
			lost++
		}
	}
	switch {
	case err != nil && !h.failed:
		h.log.Error("changes cannot be written to the history", "err", err)
	case err == nil && h.failed:
		h.log.Info("changes are written to the history again")
	}
	if h.failed = err != nil; !h.failed {
		h.gap = time.Time{}
		if err := h.files.trim(); err != nil {
			h.log.Warn("old files of the history cannot be deleted", "err", err)
		}
	} else if h.begun && lost > 0 {
		h.lost.Add(float64(lost))
		h.files.invalidateBase()
		if h.gap.IsZero() {
			h.gap = now
		}
	}
	h.health.set(func(health *Health) {
		if health.Error = ""; err != nil {
			health.Error = err.Error()
		}
		if h.begun {
			health.Lost += lost
		}
	})
}

// prepare opens the segment for the next records.
func (h *History) prepare(now time.Time) error {
	full := h.files.limit / segmentShares
	if h.files.current.IsOpen() {
		path, err := h.files.path(h.files.last().number, segmentSuffix), h.files.current.Check()
		if err == nil && h.begun {
			path = h.files.path(h.files.base.number, baseSuffix)
			_, err = os.Stat(path)
		}
		if err != nil {
			h.damaged(path, err)
			_ = h.files.current.Close() // the next records are in another file
		}
		if err != nil && h.begun {
			h.gap = now
		}
	}
	switch {
	case !h.gap.IsZero():
		return h.files.rotate(h.served, markGap, now)
	case h.begun && h.files.sizeSince(h.files.base.number) >= full:
		return h.files.rotate(h.served, markBegin, now)
	case !h.files.current.IsOpen() || h.files.last().size >= full:
		return h.files.create()
	}
	return nil
}
