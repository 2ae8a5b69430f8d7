package lastgood

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"tributary/resource"
)

// The buckets of a file, and the keys of the first.
var (
	bucketMeta    = []byte("meta")
	bucketObjects = []byte("objects")
	keyFormat     = []byte("format")
	keyState      = []byte("state")
	keyNote       = []byte("note") // missing without one
)

// format is the version of what is in the buckets.
const format = "1"

// errNewer says that a file was written by a version of the program that came after this one.
var errNewer = errors.New("its format is newer than this version of tributary")

// Kept is what a source published last.
type Kept struct {
	Resources []*resource.Resource  // by key; origins have the group
	Guard     []byte                // the state of the deletion guard; nil if there was none
	Held      map[resource.Key]Held // of Resources
	Note      []byte                // what the source itself wants to know, or nil
	Prints    map[string]Print      // of groups; they may be those of another state than Resources
	Stored    time.Time             // when this was written

	state    state
	reusable bool // the file can be written to as it is
}

// Load returns what the store has, or nil if it has nothing. A file that cannot be read, is damaged or is of a newer
// format is set aside, under another name in the same directory; the error says so. It is not called while Run runs.
func (s *Store) Load() (*Kept, error) {
	data, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var kept *Kept
	if err == nil {
		kept, err = parse(data, s.name())
	}
	if err == nil {
		s.prints.restore(kept.Prints)
		return kept, nil
	}
	suffix := "damaged"
	if errors.Is(err, errNewer) {
		suffix = "newer"
	}
	aside := fmt.Sprintf("%s.%s-%s", s.path, suffix, s.now().UTC().Format(asideTime))
	if moved := os.Rename(s.path, aside); moved != nil {
		return nil, fmt.Errorf("%s is not used: %w; it could not be set aside: %w", s.path, err, moved)
	}
	return nil, fmt.Errorf("%s is not used: %w; it was set aside as %s", s.path, err, aside)
}

// parse reads a file. It returns all that was kept, or an error, and never a part.
func parse(data []byte, source string) (*Kept, error) {
	p, root, err := openPages(data)
	if err != nil {
		return nil, err
	}
	buckets, err := p.buckets(root)
	if err != nil {
		return nil, err
	}
	meta, objects := buckets[string(bucketMeta)], buckets[string(bucketObjects)]
	if meta == nil {
		return nil, damaged("it has no bucket %s", bucketMeta)
	}
	want, note, err := readMeta(meta)
	if err != nil {
		return nil, err
	}
	if objects == nil {
		return nil, damaged("it has no bucket %s", bucketObjects)
	}
	kept := &Kept{Guard: want.guard, Held: make(map[resource.Key]Held), Note: note, Stored: want.stored, state: want}
	if prints := buckets[string(bucketPrints)]; prints != nil {
		if kept.Prints, err = readPrints(prints); err != nil {
			return nil, err
		}
	}
	var have state
	err = objects(func(key, record []byte) error {
		message, err := unseal(key, record)
		if err != nil {
			return err
		}
		k, err := decodeKey(key)
		if err != nil {
			return err
		}
		r, held, err := decode(k, message, source)
		if err != nil {
			return err
		}
		if held != nil {
			kept.Held[k] = *held
		}
		have.add(record, 1)
		kept.Resources = append(kept.Resources, r)
		return nil
	})
	if err == nil && (have.count != want.count || have.sum != want.sum) {
		err = damaged("it has %d objects, and not the %d that it should have", have.count, want.count)
	}
	if err != nil {
		return nil, err
	}
	kept.reusable = p.reusable() && known(buckets)
	return kept, nil
}

// known reports whether all that there is was read.
func known(buckets map[string]content) bool {
	for name := range buckets {
		switch name {
		case string(bucketMeta), string(bucketObjects), string(bucketPrints):
		default:
			return false
		}
	}
	return true
}

// readMeta reads the first bucket, and checks that the format is known.
func readMeta(meta content) (of state, note []byte, err error) {
	var version string
	var encoded []byte
	err = meta(func(key, record []byte) error {
		message, err := unseal(key, record)
		switch string(key) {
		case string(keyFormat):
			version = string(message)
		case string(keyState):
			encoded = message
		case string(keyNote):
			note = bytes.Clone(message)
		default:
			return nil // of a newer format, perhaps
		}
		return err
	})
	switch {
	case err != nil:
		return state{}, nil, err
	case version == "":
		return state{}, nil, damaged("it has no format")
	case version != format:
		return state{}, nil, fmt.Errorf("%w: %q, not %q", errNewer, version, format)
	case encoded == nil:
		return state{}, nil, damaged("it has no state")
	}
	of, err = decodeState(encoded)
	return of, note, err
}
