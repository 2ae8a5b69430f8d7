package history

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

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
	mu       sync.Mutex
	health   Health // guarded by mu

	// owned by Run
	state
	files directory
}

// state is the state of the records.
type state struct {
	segments []segment         // for readers
	served   memstore.Snapshot // the objects after the last change that was recorded or lost
	begun    bool              // the records lead to served
	gap      time.Time         // the time of the first missing change, so that the next write begins with a base; or zero
}

// Open opens the history in a directory that no other process uses, with a limit in bytes.
func Open(
	name string, size int64, view memstore.Reader, log *slog.Logger, metrics prometheus.Registerer,
) (*History, error) {
	counter := func(name, help string) prometheus.Counter {
		return promauto.With(metrics).NewCounter(prometheus.CounterOpts{Name: "tributary_history_" + name, Help: help})
	}
	history := &History{
		view: view, log: log, files: directory{name: name, limit: size}, events: make(chan *Entry, maxEvents),
		recorded: counter("records_total", "Changes that were written to the history."),
		lost:     counter("lost_total", "Changes that could not be written to the history."),
		merged: counter("merged_commits_total",
			"Commits that the history has as one with the next, since it could not keep up."),
		spoiled: counter("damaged_files_total",
			"Files of the history that were damaged or missing; their records are lost."),
	}
	if err := history.files.load(); err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	history.publish()
	return history, nil
}

// publish shows readers the state. During a gap, they see the objects before it.
func (h *History) publish() {
	readable := h.state
	readable.segments = slices.Clone(h.files.segments)
	if !h.gap.IsZero() {
		readable.served = h.readable.Load().served
	}
	h.readable.Store(&readable)
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
	_ = h.write(event.Time, slices.Values([]*Entry{event})) // Health has the error
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
	_ = h.write(now, func(yield func(*Entry) bool) { // Health has the error
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
func (h *History) write(now time.Time, entries iter.Seq[*Entry]) error {
	err := h.prepare(now)
	lost := 0
	for entry := range entries {
		if err == nil {
			_, err = h.files.append(*entry, slices.Values([]*Object{entry.Old, entry.New}))
		}
		if err == nil {
			h.recorded.Inc()
		} else {
			lost++
		}
	}
	if err == nil {
		h.gap = time.Time{}
		err = h.files.trim()
	} else if h.begun && lost > 0 {
		h.files.setBase(segment{})
		if h.gap.IsZero() {
			h.gap = now
		}
		h.lose(lost)
	}
	h.setError(err)
	return err
}

// prepare opens the segment for the next records. It writes a base after a gap, and after as many records as fill a
// segment.
func (h *History) prepare(now time.Time) error {
	files := &h.files
	if files.current.IsOpen() {
		if err := files.current.Check(); err != nil {
			h.damaged(files.last().number, err)
			_ = files.current.Close() // the next records are in another file
			if h.begun && h.gap.IsZero() {
				h.gap = now
			}
		}
	}
	share := files.limit / segmentShares
	full := files.sizeSince(files.base.number)-files.base.size >= share
	if !files.current.IsOpen() || full && files.last().size >= share {
		if err := files.create(); err != nil {
			return err
		}
	}
	if gap := !h.gap.IsZero(); gap || h.begun && full {
		return files.appendBase(now, gap, h.served)
	}
	return nil
}
