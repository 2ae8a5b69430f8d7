package lastgood

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"tributary/memstore"
	"tributary/resource"
)

// writer writes one file. It begins with a new one, made of the whole table, in the place of what is there, unless that was
// just read and found whole: so it never writes to a file of unknown condition. From then on it writes what changes.
type writer struct {
	path    string
	own     func() error // see Store
	maxSize int
	now     func() time.Time

	db    *bbolt.DB   // nil until it is written to
	file  os.FileInfo // of the file that has what follows; nil if there is none
	at    memstore.Revision
	state state  // as it is in the file
	note  []byte // the same
}

// besides is what is kept besides the table: the state of the deletion guard and what it holds back, what the source wants to
// know, and by what the groups are known.
type besides struct {
	guard       Guard
	state, note []byte
	prints      *prints
	held        *pending
}

// rebuildBatch is how many resources one transaction writes while a file is made, which bounds the memory that it takes.
const rebuildBatch = 10_000

// follow brings the file up to the table, and reports whether that took writing.
func (w *writer) follow(table memstore.Reader, read func() besides) (wrote bool, err error) {
	keys, now, ok := table.Changes(w.at)
	b := read() // after the table: what that has lost is part of it
	held := b.held.take()
	defer func() {
		if err != nil {
			b.prints.again()
			b.held.add(held)
		}
	}()
	if !ok || !w.inPlace() {
		return true, w.rebuild(now, b)
	}
	keys = slices.Concat(keys, held)
	prints := b.prints.take()
	news := !bytes.Equal(b.state, w.state.guard) || !bytes.Equal(b.note, w.note) || len(prints) > 0
	if len(keys) == 0 && !news {
		return false, nil
	}
	if w.db == nil {
		if w.db, err = w.open(w.path, false); err != nil {
			w.abandon()
			return false, fmt.Errorf("open %s: %w", w.path, err)
		}
	}
	next := w.state
	next.guard, next.stored = b.state, w.now()
	changed := false
	err = w.db.Update(func(tx *bbolt.Tx) error {
		objects := tx.Bucket(bucketObjects)
		for _, key := range keys {
			one, err := next.enter(objects, key, now.Get(key), b.guard)
			if err != nil {
				return err
			}
			changed = changed || one
		}
		if !changed && !news {
			return errNothing
		}
		if err := writePrints(tx, prints); err != nil {
			return err
		}
		return next.enterMeta(tx.Bucket(bucketMeta), b.note)
	})
	if errors.Is(err, errNothing) {
		w.at = now.Revision()
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("write %s: %w", w.path, err)
	}
	w.at, w.state, w.note = now.Revision(), next, b.note
	return true, nil
}

// errNothing ends a transaction that would change nothing.
var errNothing = errors.New("nothing to write")

// enter makes r, and what is held of it, the record of an object, or nothing if r is nil, and reports whether that was a change.
func (s *state) enter(objects *bbolt.Bucket, of resource.Key, r *resource.Resource, g Guard) (changed bool, err error) {
	key := keyOf(of)
	old := objects.Get(key)
	var record []byte
	if r != nil {
		was, said, held := g.Held(of)
		record = encode(key, r, was, said, held)
	}
	if bytes.Equal(old, record) {
		return false, nil
	}
	if old != nil {
		s.add(old, -1)
	}
	if r == nil {
		return true, objects.Delete(key)
	}
	s.add(record, 1)
	return true, objects.Put(key, record)
}

// enterMeta writes the state, and the note if there is one.
func (s *state) enterMeta(meta *bbolt.Bucket, note []byte) error {
	if err := meta.Put(keyState, s.encode(keyState)); err != nil {
		return err
	}
	if len(note) == 0 {
		return meta.Delete(keyNote)
	}
	return meta.Put(keyNote, seal(keyNote, bytes.Clone(note)))
}

// rebuild makes a new file of everything, and puts it in the place of the old.
func (w *writer) rebuild(now memstore.Snapshot, b besides) error {
	w.close()
	if err := w.own(); err != nil {
		return err
	}
	next := state{guard: b.state, stored: w.now()}
	made := w.path + unfinished
	if err := w.make(made, now, &next, b); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", made, err), ignoreMissing(os.Remove(made)))
	}
	if err := os.Rename(made, w.path); err != nil {
		return err
	}
	if err := syncDir(filepath.Dir(w.path)); err != nil {
		return err
	}
	db, err := w.open(w.path, false)
	if err != nil {
		return fmt.Errorf("open %s: %w", w.path, err)
	}
	if w.file, err = os.Stat(w.path); err != nil {
		return errors.Join(err, db.Close())
	}
	w.db, w.at, w.state, w.note = db, now.Revision(), next, b.note
	return nil
}

// make writes all of now to a file of its own, and syncs it.
func (w *writer) make(path string, now memstore.Snapshot, next *state, b besides) (err error) {
	if err := ignoreMissing(os.Remove(path)); err != nil {
		return err
	}
	db, err := w.open(path, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	write := func(rs []*resource.Resource) error {
		return db.Update(func(tx *bbolt.Tx) error {
			objects, err := tx.CreateBucketIfNotExists(bucketObjects)
			if err != nil {
				return err
			}
			objects.FillPercent = 0.9 // the keys come in order
			for _, r := range rs {
				if _, err := next.enter(objects, r.Key(), r, b.guard); err != nil {
					return err
				}
			}
			return nil
		})
	}
	batch := make([]*resource.Resource, 0, min(now.Len(), rebuildBatch))
	for r := range now.All() {
		if batch = append(batch, r); len(batch) == rebuildBatch {
			if err := write(batch); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	if err := write(batch); err != nil {
		return err
	}
	b.prints.again()
	prints := b.prints.take()
	err = db.Update(func(tx *bbolt.Tx) error {
		if err := writePrints(tx, prints); err != nil {
			return err
		}
		meta, err := tx.CreateBucket(bucketMeta)
		if err != nil {
			return err
		}
		if err := meta.Put(keyFormat, seal(keyFormat, []byte(format))); err != nil {
			return err
		}
		return next.enterMeta(meta, b.note)
	})
	if err != nil {
		return err
	}
	return db.Sync()
}

// open opens a file, or makes one. One that is only being made need not be synced at each transaction.
func (w *writer) open(path string, making bool) (*bbolt.DB, error) {
	return bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout: time.Second, PageSize: pageSize, NoSync: making, NoGrowSync: making, MaxSize: w.maxSize,
		FreelistType: bbolt.FreelistMapType, NoFreelistSync: true, NoStatistics: true,
	})
}

// inPlace reports whether the file is still where it was made, and nobody has removed or replaced it.
func (w *writer) inPlace() bool {
	if w.file == nil {
		return false
	}
	fi, err := os.Stat(w.path)
	return err == nil && os.SameFile(fi, w.file)
}

// close closes the file, if it is open. It is rebuilt when it is written to again.
func (w *writer) close() {
	if w.db != nil {
		_ = w.db.Close() // all that counts is written
	}
	w.abandon()
}

// abandon forgets a file, such as one that bbolt panicked on: its locks may be held for good, so that closing would wait
// forever.
func (w *writer) abandon() { w.db, w.file = nil, nil }

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close() //nolint:errcheck // only read
	return d.Sync()
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
