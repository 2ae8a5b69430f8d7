package lastgood

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"tributary/internal/disk"
	"tributary/resource"
)

// Kept is what a source published last.
type Kept struct {
	Resources []*resource.Resource  // by key; origins have the group
	Guard     []byte                // the state of the deletion guard; nil if there was none
	Held      map[resource.Key]Held // of Resources
	Note      []byte                // what the source itself wants to know, or nil
	Prints    map[string]Print      // of groups; they may be those of another state than Resources
	Stored    time.Time             // when this was written

	lost    int   // parts of the file that are damaged
	firstAt int64 // where the first of these is
	size    int64 // of the file
	end     int64 // behind the last whole commit
	content int64 // the size of the records that count
}

var errDamaged = errors.New("damaged, or not written by this version of tributary")

// Incomplete says whether objects may have had newer versions, which are damaged or were cut off.
func (k *Kept) Incomplete() bool { return k.lost > 0 || k.size > k.end }

// Load returns what the store has, or nil if it has nothing. It logs what is damaged. A file without a whole commit, or one that cannot be
// read, is set aside, under another name in the same directory; the error says so. Load is not called while Run runs.
func (s *Store) Load() (*Kept, error) {
	kept, err := s.read()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		to := s.path + aside + s.now().UTC().Format(asideTime)
		if moved := os.Rename(s.path, to); moved != nil {
			return nil, fmt.Errorf("%s is not used: %w; it could not be set aside: %w", s.path, err, moved)
		}
		return nil, fmt.Errorf("%s is not used: %w; it was set aside as %s", s.path, err, to)
	}
	if kept.lost > 0 {
		s.log.Error("a state file is damaged: the rest of it is used", "file", s.path, "damages", kept.lost, "first_at_byte", kept.firstAt)
	}
	if kept.size > kept.end {
		s.log.Info("the last write to a state file was not finished: it is cut off", "file", s.path, "at_byte", kept.end)
	}
	return kept, nil
}

// read reads the file.
func (s *Store) read() (*Kept, error) {
	file, err := os.Open(s.path)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // only read
	in, err := disk.FileReader(file)
	if err != nil {
		return nil, err
	}
	return s.parse(in)
}

// parse reads the content of the file.
func (s *Store) parse(in *disk.Reader) (*Kept, error) {
	kept := &Kept{Held: make(map[resource.Key]Held), Prints: make(map[string]Print)}
	records, err := kept.commits(in)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(records, func(a, b record) int { return cmp.Compare(a.key, b.key) })
	values := make(map[string][]byte)
	name := s.name()
	for i, r := range records {
		if i+1 < len(records) && records[i+1].key == r.key || len(r.value) == 0 {
			continue // a later record has replaced or deleted it
		}
		kept.content += r.size()
		if r.key[0] != keyObject[0] {
			values[r.key] = r.value
			continue
		}
		if err := kept.add(r, name); err != nil {
			return nil, err
		}
	}
	if kept.lost > 0 { // a group may lack objects: it is not what its print says
		for key := range values {
			if key[0] == keyPrint[0] {
				delete(values, key)
			}
		}
	}
	kept.Guard, kept.Note = values[keyGuard], values[keyNote]
	for key, value := range values {
		if key[0] == keyPrint[0] {
			kept.Prints[key[1:]] = decodePrint(value)
		}
	}
	s.values.restore(values)
	return kept, nil
}

// commits returns the records of all whole commits, in order. The error is errDamaged if there is none.
func (k *Kept) commits(in *disk.Reader) (records []record, err error) {
	committed := 0
	for {
		var r record
		payload, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			r, err = decodeRecord(payload)
		}
		damage, damaged := errors.AsType[*disk.Damage](err)
		switch {
		case damaged && damage.Torn: // it is cut off
		case damaged:
			if k.lost++; k.lost == 1 {
				k.firstAt = damage.From
			}
		case err != nil:
			return nil, err
		case r.key == keyCommit:
			committed, k.end = len(records), in.At()
			k.Stored, err = time.Parse(time.RFC3339Nano, string(r.value))
			if err != nil {
				return nil, err
			}
		default:
			records = append(records, r)
		}
	}
	if k.size = in.At(); k.end == 0 {
		return nil, errDamaged
	}
	return records[:committed], nil
}

// add takes up an object of source.
func (k *Kept) add(r record, source string) error {
	key, err := decodeKey(r.key)
	if err != nil {
		return err
	}
	one, held, err := decode(key, r.value, source)
	if err != nil {
		return err
	}
	if held != nil {
		k.Held[key] = *held
	}
	k.Resources = append(k.Resources, one)
	return nil
}
