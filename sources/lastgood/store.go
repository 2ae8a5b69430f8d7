package lastgood

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"tributary/memstore"
	"tributary/resource"
)

// Delay is how long changes are collected before they are written.
const Delay = 200 * time.Millisecond

// The times after which a write that failed is tried again: from the first, doubling, up to the last.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// Store keeps what one source published last. All methods are safe for concurrent use, but for what they say.
type Store struct {
	path    string
	log     *slog.Logger
	now     func() time.Time
	own     func() error  // makes sure of the directory before something new is put there, or taken away
	maxSize int           // of the file in bytes, for tests; 0 for any
	wake    chan struct{} // for Run; holds one
	prints  prints
	held    pending

	mu     sync.Mutex
	source string // its name
	guard  Guard
	note   []byte
	status Status
	whole  *whole // for Run to begin with, or nil
}

// whole is a file that was read, found whole, and can be gone on with.
type whole struct {
	file  os.FileInfo
	at    memstore.Revision
	state state
	note  []byte
}

// Status is the state of a store at one moment. It is a copy, and may be encoded as JSON.
type Status struct {
	File string `json:"file"`
	// Revision is that of the table up to which everything is stored.
	Revision memstore.Revision `json:"revision"`
	Stored   *time.Time        `json:"stored,omitempty"` // when the last change was
	Error    string            `json:"error,omitempty"`  // why nothing is stored at present
}

func newStore(path, source string, log *slog.Logger) *Store {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Store{
		path: path, source: source, log: log, now: time.Now, own: func() error { return os.MkdirAll(filepath.Dir(path), 0o700) },
		wake: make(chan struct{}, 1), guard: unguarded{}, status: Status{File: path},
	}
}

// ID returns what the store was made for; see Dir.Source.
func (s *Store) ID() string { return strings.TrimSuffix(filepath.Base(s.path), ".db") }

// Status returns how the store is doing.
func (s *Store) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// Rename gives the source another name.
func (s *Store) Rename(source string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.source = source
}

func (s *Store) name() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.source
}

// Guard has the store keep what the guard of the source knows.
func (s *Store) Guard(g Guard) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.guard = g
}

// SetHeld has the store ask its guard what is held of objects, and keep that beside what is served of them. It does not block.
func (s *Store) SetHeld(keys []resource.Key) {
	if len(keys) > 0 {
		s.held.add(keys)
	}
	s.Touch()
}

// Touch has the store look whether there is something to write, though the table is as it was. It does not block.
func (s *Store) Touch() {
	select {
	case s.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// SetNote has the store keep what a source wants to know when it runs again, in place of what it kept before. It takes note
// over, and does not block.
func (s *Store) SetNote(note []byte) {
	s.mu.Lock()
	changed := !bytes.Equal(s.note, note)
	s.note = note
	s.mu.Unlock()
	if changed {
		s.Touch()
	}
}

// SetPrint has the store keep p as the print of group; a zero one is forgotten. It does not block.
func (s *Store) SetPrint(group string, p Print) {
	if s.prints.set(group, p) {
		s.Touch()
	}
}

// Continue says that at revision at the table of the source is what Load returned: then the file is gone on with, and not
// made anew. It is not called while Run runs.
func (s *Store) Continue(kept *Kept, at memstore.Revision) {
	fi, err := os.Stat(s.path)
	if err != nil || !kept.reusable {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.whole = &whole{file: fi, at: at, state: kept.state, note: kept.Note}
}

// besides returns what is kept besides the table.
func (s *Store) besides() besides {
	s.mu.Lock()
	guard, note := s.guard, s.note
	s.mu.Unlock()
	return besides{guard: guard, state: guard.State(), note: note, prints: &s.prints, held: &s.held}
}

// Run has the file follow table, once that is synced, until ctx ends; what changed by then is still written. A disk that
// fails is reported, once, and tried again: nobody waits for it. It is not called twice at once.
func (s *Store) Run(ctx context.Context, table memstore.Reader) {
	// bbolt maps the file: where the disk fails under it, that is a fault in memory, which can then be recovered from.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	w := s.writer()
	defer w.close()
	retry := firstRetry
	for {
		changed := table.Changed()
		last := ctx.Err() != nil // what changes after this need not be written
		err := s.write(w, table)
		s.report(err)
		switch {
		case last:
			return
		case err != nil:
			pause(ctx, retry)
			retry = min(2*retry, lastRetry)
			continue
		}
		retry = firstRetry
		select {
		case <-ctx.Done():
		case <-changed:
		case <-s.wake:
		}
		pause(ctx, Delay)
	}
}

// writer returns one that goes on with the file that was found whole, if there is one, or else makes a new one.
func (s *Store) writer() *writer {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &writer{path: s.path, own: s.own, maxSize: s.maxSize, now: s.now}
	if s.whole != nil {
		w.file, w.at, w.state, w.note = s.whole.file, s.whole.at, s.whole.state, s.whole.note
		s.whole = nil
	}
	return w
}

// pause waits, but not longer than ctx.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// write brings the file up to the table. bbolt panics on a file that somebody else has written to.
func (s *Store) write(w *writer, table memstore.Reader) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("write %s: panic: %v", s.path, p)
			w.abandon()
		}
	}()
	if !table.Synced() {
		return nil // what there is may be a part
	}
	wrote, err := w.follow(table, s.besides)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.status.Revision = w.at
	}
	if wrote {
		now := s.now()
		s.status.Stored = &now
	}
	return err
}

// report notes and logs whether writing works, when that changes.
func (s *Store) report(err error) {
	s.mu.Lock()
	failed := s.status.Error != ""
	s.status.Error = ""
	if err != nil {
		s.status.Error = err.Error()
	}
	s.mu.Unlock()
	switch {
	case err != nil && !failed:
		s.log.Error("what the source publishes is not stored, and a restart would serve an older state", "source", s.name(), "err", err)
	case err == nil && failed:
		s.log.Info("what the source publishes is stored again", "source", s.name())
	}
}

// Forget removes what is kept of a source that is no more. It is not called while Run runs.
func (s *Store) Forget() error {
	if err := s.own(); err != nil {
		return fmt.Errorf("forget source %s: %w", s.name(), err)
	}
	if err := os.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget source %s: %w", s.name(), err)
	}
	return nil
}
