// Package lastgood keeps on disk what each source published last, so that a restart can serve it while the source itself
// cannot be read, and so that creation times, quarantines and holds outlive the process.
//
// There is one bbolt file a source. It follows the source's table: what changed is written at most Delay later, in one
// transaction, however much it is; a commit never waits for the disk. Each transaction is synced to the disk (fdatasync)
// before it counts as stored, so that after a crash, also one of the machine, the file has everything that Status.Revision
// said was stored, or something newer, and never half of a commit. What was lost with the last moments is read from the
// source again.
//
// What is read back is believed only if it is whole: every record and the set of them are checksummed, and the structure
// of the file, which bbolt takes on trust, is checked on the way. A file that is not is set aside. A file has content only
// once its source has been read as a whole.
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
)

// Dir is a state directory. One process at a time uses it.
type Dir struct {
	path string
	lock *lock
	log  *slog.Logger
}

// Open makes the directory at path if need be, and locks it. The error names the process that uses it, if one does.
func Open(path string, log *slog.Logger) (*Dir, error) {
	l := &lock{path: path}
	if err := l.own(); err != nil {
		return nil, errors.Join(err, l.release())
	}
	return &Dir{path: path, lock: l, log: log}, nil
}

// OpenLater is Open of a directory that another process uses until Own is called. Until then it is only read.
func OpenLater(path string, log *slog.Logger) *Dir {
	return &Dir{path: path, lock: &lock{path: path}, log: log}
}

// Own locks the directory, if this process has not locked it already. The error names the process that uses it.
func (d *Dir) Own() error { return d.lock.own() }

// Path returns where the directory is.
func (d *Dir) Path() string { return d.path }

// Source returns the store of what is made of id, which must be fit for a file name. Who runs it says what the source is called.
func (d *Dir) Source(id string) *Store {
	s := newStore(filepath.Join(d.path, "sources", id+".db"), id, d.log)
	s.own = d.lock.own
	return s
}

// Kept returns the ids of which something is kept, the one that was last written first.
func (d *Dir) Kept() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(d.path, "sources"))
	if ignoreMissing(err) != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	var ids []string
	written := make(map[string]time.Time)
	for _, e := range entries {
		if id, kept := strings.CutSuffix(e.Name(), ".db"); kept {
			if info, err := e.Info(); err == nil {
				ids, written[id] = append(ids, id), info.ModTime()
			}
		}
	}
	slices.SortStableFunc(ids, func(a, b string) int { return written[b].Compare(written[a]) })
	return ids, nil
}

// Unused removes what is kept of sources that are none of those with ids, if it was last written before a time; and, of whichever
// source, what was set aside before it, and what a crash left half made.
func (d *Dir) Unused(ids []string, before time.Time) error {
	if err := d.lock.own(); err != nil {
		return err
	}
	entries, err := os.ReadDir(filepath.Join(d.path, "sources"))
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	var errs []error
	for _, e := range entries {
		id, rest, kept := strings.Cut(e.Name(), ".db")
		info, err := e.Info()
		if !kept || err != nil {
			continue
		}
		at := info.ModTime()
		switch aside, isAside := setAside(rest); {
		case rest == "" && slices.Contains(ids, id):
			continue
		case isAside:
			at = aside // it keeps the time at which it was written, which may have been long before
		case rest != "" && rest != unfinished:
			continue // it is not of ours
		}
		if at.Before(before) {
			errs = append(errs, ignoreMissing(os.Remove(filepath.Join(d.path, "sources", e.Name()))))
		}
	}
	return errors.Join(errs...)
}

// unfinished is what the name of a file ends with while it is made.
const unfinished = ".new"

// asideTime is how the time at which a file was set aside stands in its name.
const asideTime = "20060102T150405.000000000Z"

// setAside returns when a file was set aside of which the name has suffix behind that of its source.
func setAside(suffix string) (at time.Time, ok bool) {
	why, when, dashed := strings.Cut(suffix, "-")
	if !dashed || why != ".damaged" && why != ".newer" {
		return time.Time{}, false
	}
	at, err := time.Parse(asideTime, when)
	return at, err == nil
}

// Close lets go of the directory. Nothing runs on its stores any more.
func (d *Dir) Close() error { return d.lock.release() }
