package lastgood

import (
	"io"
	"maps"
	"os"
	"slices"

	"tributary/internal/disk"
	"tributary/memstore"
	"tributary/resource"
)

// writer writes the file of a store. It begins with a new file of the whole table, unless Load just read an undamaged
// one. Then it appends changes.
type writer struct {
	*Store

	file     *disk.File // nil before rebuild
	liveSize int64      // approximate bytes of live records
	revision memstore.Revision
}

// rebuildSlack is the number of bytes that even a small file may grow by before the writer replaces it.
const rebuildSlack = 256 << 10

// writer returns a writer that appends to the loaded file if that is undamaged and unchanged, or else makes a new one.
func (s *Store) writer() *writer {
	s.mu.Lock()
	defer s.mu.Unlock()
	output := &writer{Store: s}
	state := s.resumeState
	s.resumeState = nil
	if state == nil || state.damagedParts > 0 {
		return output
	}
	if info, err := os.Stat(s.path); err == nil && info.Size() == state.size {
		if file, err := disk.Open(s.path, state.committed, true); err == nil {
			file.SetRoom(s.maxSize)
			output.file, output.liveSize, output.revision = file, state.liveSize, s.resumeRevision
		}
	}
	return output
}

// follow writes the changes of the table, and reports whether there were any.
func (w *writer) follow(table memstore.Reader) (written bool, err error) {
	w.mu.Lock()
	guard := w.guard
	w.mu.Unlock()
	var keys []resource.Key
	var snapshot memstore.Snapshot
	var complete bool
	var dirty map[string]resource.Key
	values := make(map[string][]byte) // of dirty
	guard.BetweenCommits(func(state []byte) {
		keys, snapshot, complete = table.Changes(w.revision)
		w.set(keyGuard, state)
		w.mu.Lock()
		defer w.mu.Unlock()
		dirty = w.dirty
		w.dirty = make(map[string]resource.Key)
		for key := range dirty {
			values[key] = w.values[key]
		}
	})
	defer func() {
		if err != nil {
			w.mu.Lock()
			maps.Copy(w.dirty, dirty)
			w.mu.Unlock()
		}
	}()
	if !complete || !w.file.IsOpen() || w.file.Check() != nil ||
		w.file.Size() > 2*w.liveSize+rebuildSlack || len(keys) > snapshot.Len()/2+1000 {
		return true, w.rebuild(table, guard)
	}
	for _, key := range keys {
		dirty[recordKey(key)] = key
	}
	if len(dirty) == 0 {
		w.revision = snapshot.Revision()
		return false, nil
	}
	var frames []byte
	for _, key := range slices.Sorted(maps.Keys(dirty)) {
		value := values[key]
		if object := snapshot.Get(dirty[key]); object != nil {
			value = objectValue(object, guard)
		}
		frames = record{key, value}.appendTo(frames)
	}
	if err := w.file.Append(commitRecord(w.now()).appendTo(frames)); err != nil {
		return false, err
	}
	w.revision = snapshot.Revision()
	return true, nil
}

// objectValue encodes an object with its held loss.
func objectValue(object *resource.Resource, guard Guard) []byte {
	previous, desired, held := guard.Held(object.Key())
	return encodeObject(object, previous, desired, held)
}

// rebuild replaces the file by one of the whole table.
func (w *writer) rebuild(table memstore.Reader, guard Guard) error {
	if err := w.ownDir(); err != nil {
		return err
	}
	var snapshot memstore.Snapshot
	var values map[string][]byte
	guard.BetweenCommits(func([]byte) {
		snapshot = table.Snapshot()
		w.mu.Lock()
		defer w.mu.Unlock()
		values = maps.Clone(w.values)
	})
	var frame []byte
	size, err := disk.Replace(w.path, true, func(output io.Writer) error {
		var size int64
		writeRecord := func(object record) error {
			frame = object.appendTo(frame[:0])
			if size += int64(len(frame)); w.maxSize > 0 && size > w.maxSize {
				return disk.ErrNoRoom
			}
			_, err := output.Write(frame)
			return err
		}
		if reading := values[keyReading]; len(reading) > 0 { // the first record; see fileReading
			if err := writeRecord(record{keyReading, reading}); err != nil {
				return err
			}
			delete(values, keyReading)
		}
		for object := range snapshot.All() {
			if err := writeRecord(record{recordKey(object.Key()), objectValue(object, guard)}); err != nil {
				return err
			}
		}
		for key, value := range values {
			if err := writeRecord(record{key, value}); err != nil {
				return err
			}
		}
		return writeRecord(commitRecord(w.now()))
	})
	if err != nil {
		return err
	}
	w.close()
	if w.file, err = disk.Open(w.path, size, true); err != nil {
		return err
	}
	w.file.SetRoom(w.maxSize)
	w.liveSize, w.revision = size, snapshot.Revision()
	return nil
}

// close closes the file. A later write makes a new one.
func (w *writer) close() {
	_ = w.file.Close()
}
