package history

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tributary/memstore"
	"tributary/resource"
)

// DefaultSize is what a history may take on disk unless told otherwise: an update of a service takes about half a kilobyte there, so that a
// change each five seconds, day and night, is remembered for a week.
const DefaultSize = 64 << 20

// LeastSize is the least that a history can do with.
const LeastSize = 1 << 20

// flushAt is how much is written at once.
const flushAt = 1 << 20

// maxEvents is how many events wait to be written.
const maxEvents = 1000

// History writes and reads one directory. Find and At may be called by anyone.
type History struct {
	view    memstore.Reader
	log     *slog.Logger
	records prometheus.Counter
	lost    prometheus.Counter
	merged  prometheus.Counter
	spoiled prometheus.Counter
	opened  time.Time
	events  chan *Entry // for Run to write

	state  atomic.Pointer[state]
	health health

	// owned by Run
	files  segments
	last   memstore.Snapshot // up to which everything is written, or lost
	begun  bool              // what changed before is written
	failed bool              // the last try to write
	gap    gap               // of the changes that could not be written
	next   *encoder          // of the records of the round
}

// state is what can be read, and the state of the view that it leads to.
type state struct {
	segments []segment
	now      memstore.Snapshot
	begun    bool // now is known
	gap      gap
}

// gap is a time in which changes were lost. It ends when changes are written again.
type gap struct {
	since  time.Time // zero if there is none
	before memstore.Snapshot
}

// Open opens the history at dir, which this process alone uses, of size bytes at most.
func Open(dir string, size int64, view memstore.Reader, log *slog.Logger, metrics prometheus.Registerer) (*History, error) {
	h := &History{
		view: view, log: log, files: segments{dir: dir, limit: size}, next: new(encoder), opened: time.Now().UTC(),
		events: make(chan *Entry, maxEvents),
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "tributary_history_" + name, Help: help})
	}
	h.records = counter("records_total", "Changes that were written to the history.")
	h.lost = counter("lost_total", "Changes that could not be written to the history.")
	h.merged = counter("merged_commits_total", "Commits that the history has as one with the next, since it could not keep up.")
	h.spoiled = counter("damaged_files_total", "Files of the history that were found damaged or gone: what was in them is not known any more.")
	if err := h.files.open(func(path string, err error) { h.damaged(path, err) }); err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	h.publish()
	for _, c := range []prometheus.Collector{h.records, h.lost, h.merged, h.spoiled} {
		if err := metrics.Register(c); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// Run writes events at once, and what changes from when the view is synced, until ctx ends. What goes wrong is logged, and has entries be
// lost; it is no reason for the program to end. It may be called again then.
func (h *History) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		changed, synced := h.view.Changed(), h.view.Synced()
		changes, now := memstore.ChangesFrom(h.view, h.last)
		if synced {
			h.update(changes, now)
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case e := <-h.events:
			h.write(e)
		}
	}
	for len(h.events) > 0 {
		h.write(<-h.events)
	}
	if err := h.files.close(); err != nil {
		h.log.Warn("the history is not closed", "err", err)
	}
	return nil
}

// Note has Run write an event, of a source or of the whole program. It does not block.
func (h *History) Note(event, source, text string) {
	select {
	case h.events <- &Entry{At: time.Now().UTC(), Event: event, Source: source, Text: text}:
	default:
		h.lost.Inc()
	}
}

// write writes an event, before the view is synced into a segment of events.
func (h *History) write(e *Entry) {
	if !h.begun && (!h.files.last.IsOpen() || h.files.full()) {
		if err := h.files.beginEvents(); err != nil {
			h.note(err)
		}
	}
	w := writing{history: h, records: h.next, at: e.At}
	w.add(e)
	w.flush()
	h.publish()
}

// update writes changes, which lead to what the view is now.
func (h *History) update(changes iter.Seq[memstore.Change], now memstore.Snapshot) {
	at := time.Now().UTC()
	if !h.begun {
		h.begin(now, at)
		return
	}
	if commits := now.Revision() - h.last.Revision(); commits > 1 {
		h.merged.Add(float64(commits - 1))
	}
	if path, err := h.files.check(); err != nil {
		h.damaged(path, err)
	}
	if h.health.renew.Swap(false) {
		h.files.closeSegment()
	}
	if !h.files.last.IsOpen() || h.files.full() {
		if err := h.files.begin(h.last, at); err != nil {
			h.note(err)
		}
	}
	w := writing{history: h, records: h.next, at: at}
	for c := range changes {
		w.add(entryOf(at, c.Old, c.New))
	}
	w.flush()
	h.last = now
	h.publish()
}

// begin writes what has changed since an earlier process served, and goes on from now.
func (h *History) begin(now memstore.Snapshot, at time.Time) {
	h.last = now
	before, err := h.files.served(h.read)
	if isDamage(err) {
		h.damaged(h.files.path(h.files.base.number, baseSuffix), err)
	} else if err != nil {
		h.note(err)
	}
	// What changed while nobody looked, or could not be written, is not known.
	unknown := before == nil && slices.ContainsFunc(h.files.all, func(seg segment) bool { return !seg.events })
	if err := h.files.begin(now, at); err != nil {
		h.note(err)
		return // with the next commit, again
	}
	h.begun = true
	h.health.renew.Store(false) // the segment is new
	if unknown {
		h.note(h.markGap(at))
	}
	w := writing{history: h, records: h.next, at: at}
	if before != nil {
		for r := range now.All() {
			was, served := before[r.Key()]
			delete(before, r.Key())
			if served && was.version == r.Version() {
				continue
			}
			e := entryOf(at, was.object.Resource(), r)
			if e.Unwatched, e.Unknown = true, served && was.object == nil; e.Unknown {
				e.Event = Updated
			}
			w.add(e)
		}
		for key, was := range before {
			e := &Entry{At: at, Event: Deleted, Unwatched: true, Unknown: was.object == nil, Old: was.object}
			e.about(key, resource.Origin{})
			if was.object != nil {
				e.Source, e.Place = was.object.Source, was.object.Place
			}
			w.add(e)
		}
	}
	w.flush()
	if h.begun = h.gap.since.IsZero(); h.begun { // else, with the next commit, again: without a base
		h.recovered()
	}
	h.publish()
}

// note logs that something went wrong, once until something goes well.
func (h *History) note(err error) {
	if err == nil {
		return
	}
	if !h.failed {
		h.log.Error("changes cannot be written to the history", "err", err)
		h.health.set(func(now *Health) { now.Error = err.Error() })
	}
	h.failed = true
}

// recovered notes that writing goes well again.
func (h *History) recovered() {
	if h.failed {
		h.log.Info("changes are written to the history again")
	}
	h.failed, h.gap = false, gap{}
	h.health.set(func(now *Health) { now.Error = "" })
}

// markGap appends the mark of one.
func (h *History) markGap(at time.Time) error {
	gap := new(encoder)
	return errors.Join(gap.add(head{Entry{At: at}, mark{markGap}}), h.files.append(gap.out))
}

func (h *History) publish() {
	h.state.Store(&state{append([]segment(nil), h.files.all...), h.last, h.begun, h.gap})
}

// writing is one round.
type writing struct {
	history *History
	records *encoder
	at      time.Time
	n       int // in records
}

func (w *writing) add(e *Entry) {
	kind := mark{}
	if e.Kind == "" {
		kind.Mark = markEvent
	}
	if err := w.records.add(head{*e, kind}); err != nil {
		w.history.lose(1, err)
		return
	}
	if w.n++; len(w.records.out) >= flushAt {
		w.flush()
	}
}

// flush writes the records. Behind some that were lost comes a mark first.
func (w *writing) flush() {
	h := w.history
	if w.n == 0 {
		return
	}
	var err error
	if h.failed {
		err = h.markGap(w.at)
	}
	if err == nil {
		err = h.files.append(w.records.out)
	}
	if err != nil {
		h.lose(w.n, err)
	} else {
		h.records.Add(float64(w.n))
		h.recovered()
		if err := h.files.trim(); err != nil {
			h.log.Warn("what the history has no room for is not removed", "err", err)
		}
	}
	w.records.out = w.records.out[:0]
	w.n = 0
}
