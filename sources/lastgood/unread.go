package lastgood

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"tributary/internal/disk"
	"tributary/memstore"
	"tributary/resource"
)

// SetReleased tells a store in RunUnread which held losses were released. It does not block.
func (s *Store) SetReleased(keys []resource.Key) {
	s.mu.Lock()
	s.released = append(s.released, keys...)
	s.mu.Unlock()
	s.Touch()
}

// RunUnread keeps the file that other settings made, until the source was read by these or until ctx ends. It only
// writes the released losses, so that they are not held again after a restart. Run follows it.
func (s *Store) RunUnread(ctx context.Context, table memstore.Reader, read <-chan struct{}) {
	retry := firstRetry
	for {
		err := s.writeReleased(table)
		s.report(err)
		var again <-chan time.Time
		if err != nil {
			again = time.After(retry)
			retry = min(2*retry, lastRetry)
		}
		select {
		case <-ctx.Done():
			s.report(s.writeReleased(table))
			return
		case <-read:
			return
		case <-s.wake:
		case <-again:
		}
	}
}

// writeReleased appends the released losses that the file holds, as the table has their objects now.
func (s *Store) writeReleased(table memstore.Reader) error {
	s.mu.Lock()
	released := s.released
	s.mu.Unlock()
	if err := s.checkUnread(); err != nil || len(released) == 0 {
		return err
	}
	state, _, err := s.readFile()
	if err != nil {
		return disk.IgnoreMissing(err)
	}
	snapshot := table.Snapshot()
	frames := record{key: keyGuard}.appendTo(nil)
	for _, key := range released {
		if _, held := state.Held[key]; !held {
			continue
		}
		update := record{key: recordKey(key)}
		if object := snapshot.Get(key); object != nil {
			update.value = encodeObject(object, nil, nil, false)
		}
		frames = update.appendTo(frames)
	}
	file, err := disk.Open(s.path, state.committed, true)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // the append is synced
	if err := file.Append(commitRecord(s.now()).appendTo(frames)); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released = s.released[len(released):]
	return nil
}

// InheritUnread takes over the unread file of an earlier store with the same path. It must not be called during Run.
func (s *Store) InheritUnread(earlier *Store) { s.setUnread(earlier.unreadError()) }

// unreadError returns the error of reading the file, or nil.
func (s *Store) unreadError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unread
}

func (s *Store) setUnread(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unread = err
}

// checkUnread returns the error of Load while the file that it could not read exists. This process does not have the
// objects and holds of that file, and must not replace them.
func (s *Store) checkUnread() error {
	unread := s.unreadError()
	if unread == nil {
		return nil
	}
	if _, err := os.Lstat(s.path); !errors.Is(err, fs.ErrNotExist) {
		return unread
	}
	s.setUnread(nil)
	return nil
}
