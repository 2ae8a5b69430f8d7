package lastgood

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tributary/internal/disk"
)

// Dir is a state directory. One process at a time uses it.
type Dir struct {
	lock *disk.Lock
	log  *slog.Logger
}

// sourcesDir is the directory of the sources' files in a state directory.
const sourcesDir = "sources"

// Open makes the directory at path if needed, and locks it. The error names the process that holds the lock.
func Open(path string, log *slog.Logger) (*Dir, error) {
	dir := &Dir{lock: &disk.Lock{Path: path}, log: log}
	if err := dir.acquire(); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}

// acquire locks the directory, unless this process holds the lock. The error names the process that does.
func (d *Dir) acquire() error { return d.lock.Own(sourcesDir) }

// Path returns the path of the directory.
func (d *Dir) Path() string { return d.lock.Path }

// Source returns the store of a source. The name has to be a valid file name.
func (d *Dir) Source(name string) *Store {
	store := newStore(filepath.Join(d.lock.Path, sourcesDir, name+".db"), name, d.log)
	store.ownDir = d.acquire
	return store
}

// RemoveUnused removes files that were last written before a time: files of sources other than the named ones, and
// damaged or unfinished files of any source.
func (d *Dir) RemoveUnused(names []string, before time.Time) error {
	if err := d.acquire(); err != nil {
		return err
	}
	entries, err := os.ReadDir(filepath.Join(d.lock.Path, sourcesDir))
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	var failures []error
	for _, entry := range entries {
		end := strings.LastIndex(entry.Name(), ".db") // the name of a source may have it, too
		info, err := entry.Info()
		if end < 0 || err != nil {
			continue
		}
		suffix := entry.Name()[end+len(".db"):]
		if suffix == "" && slices.Contains(names, entry.Name()[:end]) {
			continue
		}
		writtenAt := info.ModTime()
		// the time of setting aside; the file has that of its last write
		if timestamp, ok := strings.CutPrefix(suffix, damagedSuffix); ok {
			if writtenAt, err = time.Parse(damagedTime, timestamp); err != nil {
				continue
			}
		} else if suffix != "" && suffix != disk.Unfinished {
			continue // not a file of this package
		}
		if writtenAt.Before(before) {
			failures = append(failures, disk.IgnoreMissing(os.Remove(filepath.Join(d.lock.Path, sourcesDir, entry.Name()))))
		}
	}
	return errors.Join(failures...)
}

// The name of a file that was set aside ends with this suffix and the time.
const (
	damagedSuffix = ".damaged-"
	damagedTime   = "20060102T150405.000000000Z"
)

// Close unlocks the directory. Its stores must have stopped.
func (d *Dir) Close() error { return d.lock.Release() }
