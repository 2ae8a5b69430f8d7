package relay

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"tributary/sources/lastgood"
)

// quarantines are the files of what Envoys reject: one for those who see all objects, and one for all who see the same part of them, which is named after that.
type quarantines struct{ dir string } // empty for nowhere

const quarantineName = "envoy-quarantine"

func quarantinesIn(state *lastgood.Dir) quarantines {
	if state == nil {
		return quarantines{}
	}
	return quarantines{state.Path()}
}

// file returns the file of those who see what key says; everything, if that is empty.
func (q quarantines) file(key string) string {
	if q.dir == "" {
		return ""
	}
	return filepath.Join(q.dir, q.name(key))
}

func (q quarantines) name(key string) string {
	if key == "" {
		return quarantineName
	}
	of := sha256.Sum256([]byte(key))
	return quarantineName + "-" + hex.EncodeToString(of[:16])
}

// clean removes the files of those keys of which is does not say so.
func (q quarantines) clean(is map[string]bool) error {
	names := map[string]bool{quarantineName: true}
	for key := range is {
		names[q.name(key)] = true
	}
	return q.remove(func(name string) bool { return strings.HasPrefix(name, quarantineName) && !names[name] })
}

// cleanHalf removes what a crash has left half written. Nothing is being written.
func (q quarantines) cleanHalf() error {
	return q.remove(func(name string) bool { return strings.HasPrefix(name, "."+quarantineName) })
}

func (q quarantines) remove(is func(name string) bool) error {
	if q.dir == "" {
		return nil
	}
	entries, err := os.ReadDir(q.dir)
	errs := []error{err}
	for _, e := range entries {
		if is(e.Name()) {
			if err := os.Remove(filepath.Join(q.dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("what Envoys rejected: %w", err)
	}
	return nil
}
