// Package lastgood keeps on disk what each source published last, so that a restart can serve it while the source itself
// cannot be read, and so that creation times, quarantines and holds outlive the process.
//
// There is one file a source. It follows the source's table: changes are appended at most Delay later, in one commit, however many they
// are; nobody waits for the disk. Each commit is synced before it counts as stored, so that after a crash, also one of the machine, the
// file has everything that Status.Revision said was stored, or something newer, and never half of a commit. What was lost with the last
// moments is read from the source again. When what was appended is larger than the content, the file is made anew.
//
// A damaged record loses only itself; a file without a whole commit is set aside. A file has content only once its source has been read
// as a whole.
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

// sub is the directory in a state directory that has the files of sources.
const sub = "sources"

// Open makes the directory at path if need be, and locks it. The error names the process that uses it, if one does.
func Open(path string, log *slog.Logger) (*Dir, error) {
	d := &Dir{lock: &disk.Lock{Path: path}, log: log}
	if err := d.acquire(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// acquire locks the directory, if this process has not locked it already. The error names the process that uses it.
func (d *Dir) acquire() error { return d.lock.Own(sub) }

// Path returns where the directory is.
func (d *Dir) Path() string { return d.lock.Path }

// Source returns the store of the source with this id, which must be fit for a file name.
func (d *Dir) Source(id string) *Store {
	s := newStore(filepath.Join(d.lock.Path, sub, id+".db"), id, d.log)
	s.own = d.acquire
	return s
}

// Kept returns the ids of which something is kept, the one that was last written first.
func (d *Dir) Kept() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(d.lock.Path, sub))
	if disk.IgnoreMissing(err) != nil {
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

// Unused removes files that were last written before a time: those of sources whose id is not among ids, and, of any source, files that
// were set aside or that a crash left unfinished.
func (d *Dir) Unused(ids []string, before time.Time) error {
	if err := d.acquire(); err != nil {
		return err
	}
	entries, err := os.ReadDir(filepath.Join(d.lock.Path, sub))
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	var errs []error
	for _, e := range entries {
		id, rest, kept := strings.Cut(e.Name(), ".db")
		info, err := e.Info()
		if !kept || err != nil || rest == "" && slices.Contains(ids, id) {
			continue
		}
		at := info.ModTime()
		if when, ok := strings.CutPrefix(rest, aside); ok { // the file keeps the time at which it was written, which may have been long before
			if at, err = time.Parse(asideTime, when); err != nil {
				continue
			}
		} else if rest != "" && rest != disk.Unfinished {
			continue // it is not ours
		}
		if at.Before(before) {
			errs = append(errs, disk.IgnoreMissing(os.Remove(filepath.Join(d.lock.Path, sub, e.Name()))))
		}
	}
	return errors.Join(errs...)
}

// The name of a file that was set aside ends with aside and the time.
const (
	aside     = ".damaged-"
	asideTime = "20060102T150405.000000000Z"
)

// Close unlocks the directory. Nothing runs on its stores any more.
func (d *Dir) Close() error { return d.lock.Release() }
