package disk

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

// Lock keeps other processes out of a state directory. It locks the directory itself, since its files may be
// removed, and a file in it with the number of this process: this works where directories cannot be locked, as on NFS.
type Lock struct {
	Path string

	mu        sync.Mutex
	dir, file *os.File
}

// Own makes the directory and a subdirectory, and locks the directory, unless it is locked already: it may have been
// replaced by another one. The error names the process that uses the directory, if there is one.
func (l *Lock) Own(directory string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := os.MkdirAll(l.Path, 0o700); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	if info, err := os.Stat(l.Path); err == nil {
		if owner := process.OtherOwner(info); owner != "" {
			return fmt.Errorf("state directory %s belongs to user %s, whose links could have other files overwritten: run "+
				"tributary as "+
				"that user, or change the owner (chown -R)", l.Path, owner)
		}
	}
	if err := os.MkdirAll(filepath.Join(l.Path, directory), 0o700); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	name := filepath.Join(l.Path, "lock")
	err := take(&l.dir, l.Path, os.O_RDONLY)
	if err == nil {
		err = take(&l.file, name, os.O_CREATE|os.O_RDWR)
	}
	if errors.Is(err, process.ErrLocked) {
		return fmt.Errorf("state directory %s is in use by another tributary, process %s; give each a stateDir of its own",
			l.Path, owner(name))
	}
	if err != nil {
		return fmt.Errorf("lock the state directory %s: %w", l.Path, err)
	}
	return nil
}

// take locks the file at name, and stores it in *held.
func take(held **os.File, name string, flag int) error {
	if *held != nil && isAt(*held, name) {
		return nil
	}
	handle, err := os.OpenFile(name, flag, 0o600)
	if err != nil {
		return err
	}
	file := flag&os.O_CREATE != 0
	if err := process.Lock(handle); err != nil && (file || errors.Is(err, process.ErrLocked)) {
		return errors.Join(err, handle.Close())
	}
	if file { // the stores report a full file system
		_ = handle.Truncate(0)
		_, _ = handle.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	}
	if *held != nil {
		_ = (*held).Close() // it was removed
	}
	*held = handle
	return nil
}

// isAt reports whether f is the file at name.
func isAt(f *os.File, name string) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	current, err := os.Stat(name)
	return err == nil && os.SameFile(open, current)
}

// owner returns the number of the process that wrote a file named lock.
func owner(name string) string {
	if f, err := os.Open(name); err == nil {
		defer f.Close() //nolint:errcheck // only read
		text, _ := io.ReadAll(io.LimitReader(f, 20))
		if pid := strings.TrimSpace(string(text)); pid != "" {
			return pid
		}
	}
	return "unknown" // the owner did not write its ID yet
}

// Release unlocks the directory.
func (l *Lock) Release() error {
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
