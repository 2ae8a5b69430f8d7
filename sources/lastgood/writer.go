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

// writer writes the file of a store. It begins with a new one, made of the whole table, unless the present one was just read and found
// whole. From then on it appends what changes.
type writer struct {
	*Store

	file    *disk.File // nil if a new one is to be made
	content int64      // about how many bytes of the file are not replaced by later ones
	at      memstore.Revision
}

// slack is how much may be appended to a file of any size before a new one is made.
const slack = 256 << 10

// writer returns one that goes on with the file that was loaded, if it is whole and still there, or else makes a new one.
func (s *Store) writer() *writer {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &writer{Store: s}
	kept := s.kept
	s.kept = nil
	if kept == nil || kept.lost > 0 {
		return w
	}
	if info, err := os.Stat(s.path); err == nil && info.Size() == kept.size {
		if file, err := disk.Open(s.path, kept.end, true); err == nil {
			file.SetRoom(s.maxSize)
			w.file, w.content, w.at = file, kept.content, s.at
		}
	}
	return w
}

// follow brings the file up to the table, and reports whether that took writing.
func (w *writer) follow(table memstore.Reader) (wrote bool, err error) {
	keys, now, ok := table.Changes(w.at)
	w.mu.Lock()
	guard := w.guard
	w.mu.Unlock()
	w.values.set(keyGuard, guard.State()) // after the table: what that has lost is part of it
	dirty := w.values.takeDirty()
	defer func() {
		if err != nil {
			w.values.markDirty(dirty)
		}
	}()
	if !ok || !w.file.IsOpen() || w.file.Check() != nil || w.file.Size() > 2*w.content+slack || len(keys) > now.Len()/2+1000 {
		return true, w.rebuild(now, guard)
	}
	for _, key := range keys {
		dirty[recordKey(key)] = key
	}
	if len(dirty) == 0 {
		w.at = now.Revision()
		return false, nil
	}
	var frames []byte
	for _, key := range slices.Sorted(maps.Keys(dirty)) {
		value := w.values.get(key)
		if one := now.Get(dirty[key]); one != nil {
			value = valueOf(one, guard)
		}
		frames = record{key, value}.appendTo(frames)
	}
	if err := w.file.Append(commit(w.now()).appendTo(frames)); err != nil {
		return false, err
	}
	w.at = now.Revision()
	return true, nil
}

// valueOf is what is kept of an object: what is served of it, and what is held.
func valueOf(r *resource.Resource, guard Guard) []byte {
	was, desired, held := guard.Held(r.Key())
	return encode(r, was, desired, held)
}

// rebuild makes a new file of everything, and puts it in the place of the old.
func (w *writer) rebuild(now memstore.Snapshot, guard Guard) error {
	if err := w.own(); err != nil {
		return err
	}
	var frame []byte
	size, err := disk.Replace(w.path, true, func(out io.Writer) error {
		var size int64
		write := func(r record) error {
			frame = r.appendTo(frame[:0])
			if size += int64(len(frame)); w.maxSize > 0 && size > w.maxSize {
				return disk.ErrNoRoom
			}
			_, err := out.Write(frame)
			return err
		}
		for r := range now.All() {
			if err := write(record{recordKey(r.Key()), valueOf(r, guard)}); err != nil {
				return err
			}
		}
		for key, value := range w.values.clone() {
			if err := write(record{key, value}); err != nil {
				return err
			}
		}
		return write(commit(w.now()))
	})
	if err != nil {
		return err
	}
	w.close()
	if w.file, err = disk.Open(w.path, size, true); err != nil {
		return err
	}
	w.file.SetRoom(w.maxSize)
	w.content, w.at = size, now.Revision()
	return nil
}

// close closes the file, of which everything is on disk. A new one is made if something more is written.
func (w *writer) close() {
	_ = w.file.Close()
}
