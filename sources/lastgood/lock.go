package lastgood

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"tributary/internal/process"
)

// lock keeps other processes out of a state directory. The directory itself is locked, since what is in it may be removed under us, and a
// file in it besides, which names us, and works where directories cannot be locked, as on NFS.
type lock struct {
	path string

	mu        sync.Mutex
	dir, file *os.File
}

// own makes the directory and what must be in it, and locks that, unless it is what was locked before: somebody may have put another one in
// its place. The error names the process that uses it, if one does.
func (l *lock) own() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := os.MkdirAll(filepath.Join(l.path, "sources"), 0o700); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	name := filepath.Join(l.path, "lock")
	err := taken(&l.dir, l.path, os.O_RDONLY)
	if err == nil {
		err = taken(&l.file, name, os.O_CREATE|os.O_RDWR)
	}
	if errors.Is(err, process.ErrLocked) {
		return fmt.Errorf("state directory %s is in use by another tributary, process %s; give each a stateDir of its own", l.path, owner(name))
	}
	if err != nil {
		return fmt.Errorf("lock the state directory %s: %w", l.path, err)
	}
	return nil
}

// taken has *held be what is at name, locked.
func taken(held **os.File, name string, flag int) error {
	if *held != nil && isAt(*held, name) {
		return nil
	}
	f, err := os.OpenFile(name, flag, 0o600)
	if err != nil {
		return err
	}
	file := flag&os.O_CREATE != 0
	if err := process.Lock(f); err != nil && (file || errors.Is(err, process.ErrLocked)) {
		return errors.Join(err, f.Close())
	}
	if file { // a file system that has no room for a few bytes is for the stores to report
		_ = f.Truncate(0)
		_, _ = f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	}
	if *held != nil {
		_ = (*held).Close() // it is nowhere any more, and nobody else's
	}
	*held = f
	return nil
}

// isAt reports whether f is what is at name.
func isAt(f *os.File, name string) bool {
	was, err := f.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(name)
	return err == nil && os.SameFile(was, now)
}

// owner returns the id of the process that wrote a file named lock.
func owner(name string) string {
	f, err := os.Open(name)
	if err != nil {
		return "unknown"
	}
	defer f.Close() //nolint:errcheck // only read
	text, _ := io.ReadAll(io.LimitReader(f, 20))
	if pid := strings.TrimSpace(string(text)); pid != "" {
		return pid
	}
	return "unknown" // it has not written it yet
}

// release lets go of the directory.
func (l *lock) release() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, f := range []*os.File{l.file, l.dir} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
