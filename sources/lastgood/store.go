package lastgood

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"tributary/internal/disk"
	"tributary/memstore"
	"tributary/resource"
)

// Delay is the time to collect changes before a write.
const Delay = 200 * time.Millisecond

// The delay of retries doubles between these after each failed write.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// Guard holds losses back, so that the table may differ from the source. Its methods are safe for concurrent use.
type Guard interface {
	// BetweenCommits calls read with the encoded state of the guard, which each write stores. Meanwhile neither the table
	// nor the prints and notes change, so that a write has the whole of a commit.
	BetweenCommits(read func(state []byte))
	// Held reports whether the guard holds a loss of an object in the table, and returns the object before the loss and
	// the one that the source wants, which is nil for a deletion. SetHeld announces a change.
	Held(key resource.Key) (previous, desired *resource.Resource, held bool)
}

// unguarded is the guard of a source without one.
type unguarded struct{}

func (unguarded) BetweenCommits(read func(state []byte)) { read(nil) }

func (unguarded) Held(resource.Key) (previous, desired *resource.Resource, held bool) {
	return nil, nil, false
}

// Store keeps the last published objects of one source. Its methods are safe for concurrent use unless they state
// otherwise.
type Store struct {
	path    string
	source  string // its name
	log     *slog.Logger
	now     func() time.Time
	ownDir  func() error  // locks the directory, before a file is made or removed there
	maxSize int64         // of the file in bytes, for tests; 0 for any
	wake    chan struct{} // for Run; holds one

	mu             sync.Mutex
	values         map[string][]byte       // of the records other than objects
	dirty          map[string]resource.Key // keys of records to write, which may be objects; the zero Key for values
	released       []resource.Key          // for RunUnread
	guard          Guard
	status         Status
	resumeState    *State            // for Run to go on with, or nil
	resumeRevision memstore.Revision // at which the table had resumeState
	unread         error             // of Load, which could not read the file; see checkUnread
}

// Status is the state of a store at one moment. It is a copy, and may be encoded as JSON.
type Status struct {
	File string `json:"file"`
	// Revision is the stored revision of the table.
	Revision memstore.Revision `json:"revision"`
	Stored   *time.Time        `json:"stored,omitempty"` // the time of the last write
	Error    string            `json:"error,omitempty"`  // of the last write, if it failed
}

func newStore(path, source string, log *slog.Logger) *Store {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Store{
		path: path, source: source, log: log, now: time.Now,
		ownDir: func() error { return os.MkdirAll(filepath.Dir(path), 0o700) },
		wake:   make(chan struct{}, 1), guard: unguarded{}, status: Status{File: path},
		values: make(map[string][]byte), dirty: make(map[string]resource.Key),
	}
}

// Status returns the state of the store.
func (s *Store) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// SetReading sets the identity of the settings that make the objects, before Load and Run.
func (s *Store) SetReading(reading string) { s.set(keyReading, []byte(reading)) }

// SetGuard sets the guard. The store keeps its state.
func (s *Store) SetGuard(guard Guard) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.guard = guard
}

// Touch makes the store check for changes outside of the table. It does not block.
func (s *Store) Touch() {
	select {
	case s.wake <- struct{}{}:
	default: // a check is due already
	}
}

// SetHeld makes the store ask its guard for the held losses of objects, and write them. It does not block.
func (s *Store) SetHeld(keys []resource.Key) {
	s.mu.Lock()
	for _, key := range keys {
		s.dirty[recordKey(key)] = key
	}
	s.mu.Unlock()
	s.Touch()
}

// SetNote replaces the private notes of a source, which it gets at the next start. The store owns note from now on.
// SetNote does not block.
func (s *Store) SetNote(note []byte) {
	if s.set(keyNote, note) {
		s.Touch()
	}
}

// SetPrint stores the print of a group, or deletes it with a zero one. It does not block.
func (s *Store) SetPrint(group string, groupPrint Print) {
	if s.set(keyPrint+group, groupPrint.encode()) {
		s.Touch()
	}
}

// Continue tells the store that the table had the loaded state at a revision, so that Run appends to the file instead
// of replacing it. It must not be called during Run.
func (s *Store) Continue(state *State, revision memstore.Revision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resumeState, s.resumeRevision = state, revision
}

// Run writes the changes of a synced table until ctx ends, including those before the end. It logs the first of
// consecutive write errors, and retries. It must not run twice at a time.
func (s *Store) Run(ctx context.Context, table memstore.Reader) {
	output := s.writer()
	defer output.close()
	retry := firstRetry
	for {
		changed := table.Changed()
		stopping := ctx.Err() != nil // later changes need not be written
		err := s.write(output, table)
		s.report(err)
		switch {
		case stopping:
			return
		case err != nil:
			waitFor(ctx, retry)
			retry = min(2*retry, lastRetry)
			continue
		}
		retry = firstRetry
		select {
		case <-ctx.Done():
		case <-changed:
		case <-s.wake:
		}
		waitFor(ctx, Delay)
	}
}

// waitFor waits for a duration or the end of ctx.
func waitFor(ctx context.Context, duration time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(duration):
	}
}

// write writes the changes of the table.
func (s *Store) write(output *writer, table memstore.Reader) error {
	if err := s.checkUnread(); err != nil {
		return err
	}
	if !table.Synced() {
		return nil // the table may be incomplete
	}
	written, err := output.follow(table)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		return err
	}
	s.status.Revision = output.revision
	if written {
		now := s.now()
		s.status.Stored = &now
	}
	return nil
}

// report records a write error or success, and logs changes between them.
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
		s.log.Error("objects of the source are not stored, and a restart would serve an older state", "source", s.source,
			"err", err)
	case err == nil && failed:
		s.log.Info("objects of the source are stored again", "source", s.source)
	}
}

// Forget removes the file of a removed source. It must not be called during Run.
func (s *Store) Forget() error {
	err := s.ownDir()
	if err == nil {
		err = disk.IgnoreMissing(os.Remove(s.path))
	}
	if err != nil {
		return fmt.Errorf("forget source %s: %w", s.source, err)
	}
	return nil
}

// set sets a value, or deletes it with an empty one, and reports whether it changed.
func (s *Store) set(key string, value []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes.Equal(s.values[key], value) {
		return false
	}
	if s.values[key] = value; len(value) == 0 {
		delete(s.values, key)
	}
	s.dirty[key] = resource.Key{}
	return true
}
