package lastgood

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"tributary/internal/disk"
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

// Guard stands in front of the table of a source, which then may differ from what the source says. Its methods may be called at any time.
type Guard interface {
	// State returns the state of the guard as a whole. It is kept with each write.
	State() []byte
	// Held reports whether a loss of an object in the table is held, and returns the object before it and as the source wants it, which is
	// nil if the object is gone. SetHeld announces a change.
	Held(key resource.Key) (was, desired *resource.Resource, held bool)
}

// Held is a held loss: the object before it, and as the source wants it, which is nil if the object is gone. The served object may join
// both.
type Held struct{ Was, Desired *resource.Resource }

// unguarded is the guard of a source that has none.
type unguarded struct{}

func (unguarded) State() []byte { return nil }

func (unguarded) Held(resource.Key) (was, desired *resource.Resource, held bool) {
	return nil, nil, false
}

// Store keeps what one source published last. All methods are safe for concurrent use, but for what they say.
type Store struct {
	path    string
	log     *slog.Logger
	now     func() time.Time
	own     func() error  // locks the directory, before a file is made or removed there
	maxSize int64         // of the file in bytes, for tests; 0 for any
	wake    chan struct{} // for Run; holds one
	values  values

	mu     sync.Mutex
	source string // its name
	guard  Guard
	status Status
	kept   *Kept             // for Run to go on with, or nil
	at     memstore.Revision // of the table that has kept
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

// Touch has the store look whether there is something to write, though the table is as it was. It does not block.
func (s *Store) Touch() {
	select {
	case s.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// SetHeld has the store ask its guard what is held of objects, and keep that beside what is served of them. It does not block.
func (s *Store) SetHeld(keys []resource.Key) {
	changed := make(map[string]resource.Key, len(keys))
	for _, k := range keys {
		changed[recordKey(k)] = k
	}
	s.values.markDirty(changed)
	s.Touch()
}

// SetNote has the store keep what a source wants to know when it runs again, in place of what it kept before. It takes note
// over, and does not block.
func (s *Store) SetNote(note []byte) {
	if s.values.set(keyNote, note) {
		s.Touch()
	}
}

// SetPrint has the store keep p as the print of group; a zero one is forgotten. It does not block.
func (s *Store) SetPrint(group string, p Print) {
	if s.values.set(keyPrint+group, p.encode()) {
		s.Touch()
	}
}

// Continue says that at revision at the table of the source is what Load returned: then the file is gone on with, and not
// made anew. It is not called while Run runs.
func (s *Store) Continue(kept *Kept, at memstore.Revision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept, s.at = kept, at
}

// Run has the file follow table, once that is synced, until ctx ends; what changed by then is still written. A disk that
// fails is reported, once, and tried again: nobody waits for it. It is not called twice at once.
func (s *Store) Run(ctx context.Context, table memstore.Reader) {
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

// pause waits, but not longer than ctx.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// write brings the file up to the table.
func (s *Store) write(w *writer, table memstore.Reader) error {
	if !table.Synced() {
		return nil // what there is may be a part
	}
	wrote, err := w.follow(table)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		return err
	}
	s.status.Revision = w.at
	if wrote {
		now := s.now()
		s.status.Stored = &now
	}
	return nil
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
	err := s.own()
	if err == nil {
		err = disk.IgnoreMissing(os.Remove(s.path))
	}
	if err != nil {
		return fmt.Errorf("forget source %s: %w", s.name(), err)
	}
	return nil
}

// values are the values of the records that are not objects, and the keys of records that are to be written, which may be objects. They are
// safe for concurrent use.
type values struct {
	mu    sync.Mutex
	all   map[string][]byte
	dirty map[string]resource.Key // the zero Key for values
}

// set reports whether value is another than before. An empty one is forgotten.
func (v *values) set(key string, value []byte) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if bytes.Equal(v.all[key], value) {
		return false
	}
	if v.all == nil {
		v.all = make(map[string][]byte)
	}
	if v.all[key] = value; len(value) == 0 {
		delete(v.all, key)
	}
	v.add(map[string]resource.Key{key: {}})
	return true
}

// restore takes over what was read from a file.
func (v *values) restore(all map[string][]byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.all, v.dirty = all, nil
}

// markDirty has keys be written.
func (v *values) markDirty(keys map[string]resource.Key) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.add(keys)
}

func (v *values) add(keys map[string]resource.Key) {
	if v.dirty == nil {
		v.dirty = make(map[string]resource.Key, len(keys))
	}
	maps.Copy(v.dirty, keys)
}

// takeDirty returns, once, the keys to be written.
func (v *values) takeDirty() map[string]resource.Key {
	v.mu.Lock()
	defer v.mu.Unlock()
	keys := v.dirty
	v.dirty = nil
	if keys == nil {
		keys = make(map[string]resource.Key)
	}
	return keys
}

func (v *values) get(key string) []byte {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.all[key]
}

func (v *values) clone() map[string][]byte {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.all)
}
