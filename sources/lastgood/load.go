package lastgood

import (
	"bytes"
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
	"tributary/sources/guard"
)

// State is the stored state of a source.
type State struct {
	Resources []*resource.Resource        // by key; origins have the group
	Guard     []byte                      // the state of the deletion guard; nil if there was none
	Held      map[resource.Key]guard.Loss // of Resources
	Note      []byte                      // private notes of the source, or nil
	Prints    map[string]Print            // by group; they may belong to another state than Resources
	Stored    time.Time                   // the time of the commit
	Outdated  bool                        // other settings than those of SetReading made the objects

	damagedParts int   // number of damaged parts
	firstDamage  int64 // its offset
	size         int64 // of the file
	committed    int64 // the end of the last whole commit
	liveSize     int64 // the size of the live records
}

var errDamaged = errors.New("damaged, or not written by this version of tributary")

// Incomplete reports whether damaged or truncated records may have had newer versions.
func (s *State) Incomplete() bool { return s.damagedParts > 0 || s.size > s.committed }

// Load returns the stored state, or nil without a file, and logs damages. It renames a file that cannot be decoded, or
// has no whole commit, and returns an error with the new name. After another read error, the file stays, and the store
// does not replace it (see checkUnread). Load must not be called during Run.
func (s *Store) Load() (*State, error) {
	state, err := s.read()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case errors.Is(err, errDamaged):
		damagedPath := s.path + damagedSuffix + s.now().UTC().Format(damagedTime)
		if renameErr := os.Rename(s.path, damagedPath); renameErr != nil {
			return nil, fmt.Errorf("%s is not used: %w; it could not be set aside: %w", s.path, err, renameErr)
		}
		return nil, fmt.Errorf("%s is not used: %w; it was set aside as %s", s.path, err, damagedPath)
	case err != nil:
		err = fmt.Errorf("the state file cannot be read: %w; it stays, and objects of the source are not stored "+
			"until it is deleted, or a restart can read it", err)
		s.setUnread(err)
		return nil, err
	}
	if state.damagedParts > 0 {
		s.log.Error("a state file is damaged: the rest of it is used", "file", s.path, "damages", state.damagedParts,
			"first_at_byte", state.firstDamage)
	}
	if state.size > state.committed {
		s.log.Info("the last write to a state file was not finished: it is cut off", "file", s.path, "at_byte",
			state.committed)
	}
	return state, nil
}

// read reads the file, and begins with its values.
func (s *Store) read() (*State, error) {
	state, values, err := s.readFile()
	if err != nil {
		return nil, err
	}
	s.begin(state, values)
	return state, nil
}

// readFile reads the file, and returns its records other than objects, too.
func (s *Store) readFile() (*State, map[string][]byte, error) {
	file, err := os.Open(s.path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close() //nolint:errcheck // only read
	reader, err := disk.FileReader(file)
	if err != nil {
		return nil, nil, err
	}
	return s.decode(reader)
}

// begin takes the values of a state, unless other settings made it.
func (s *Store) begin(state *State, values map[string][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if reading := s.values[keyReading]; !bytes.Equal(reading, values[keyReading]) {
		state.Outdated = true
		values = map[string][]byte{keyReading: reading, keyNote: state.Note}
	}
	s.values, s.dirty = values, make(map[string]resource.Key)
}

// decode decodes the content of a file, and returns its records other than objects, too.
func (s *Store) decode(reader *disk.Reader) (state *State, values map[string][]byte, err error) {
	state = &State{Held: make(map[resource.Key]guard.Loss), Prints: make(map[string]Print)}
	records, err := state.readCommits(reader)
	if err != nil {
		return nil, nil, err
	}
	slices.SortStableFunc(records, func(first, second record) int { return cmp.Compare(first.key, second.key) })
	values = make(map[string][]byte)
	for index, entry := range records {
		if index+1 < len(records) && records[index+1].key == entry.key || len(entry.value) == 0 {
			continue // replaced or deleted by a later record
		}
		state.liveSize += entry.size()
		if entry.key[0] != keyObject[0] {
			values[entry.key] = entry.value
			continue
		}
		key, err := decodeKey(entry.key)
		if err != nil {
			return nil, nil, err
		}
		object, held, err := decodeObject(key, entry.value, s.source)
		if err != nil {
			return nil, nil, err
		}
		if held != nil {
			state.Held[key] = *held
		}
		state.Resources = append(state.Resources, object)
	}
	if state.damagedParts > 0 { // a group may lack objects that its print covers
		for key := range values {
			if key[0] == keyPrint[0] {
				delete(values, key)
			}
		}
	}
	state.Guard, state.Note = values[keyGuard], values[keyNote]
	for key, value := range values {
		if key[0] == keyPrint[0] {
			state.Prints[key[1:]] = decodePrint(value)
		}
	}
	return state, values, nil
}

// readCommits returns the records of the whole commits in order. The error is errDamaged without any.
func (s *State) readCommits(reader *disk.Reader) (records []record, err error) {
	committed := 0
	for {
		var entry record
		payload, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			entry, err = decodeRecord(payload)
		}
		damage, damaged := errors.AsType[*disk.Damage](err)
		switch {
		case damaged && damage.Torn: // the end of an unfinished write
		case damaged:
			if s.damagedParts++; s.damagedParts == 1 {
				s.firstDamage = damage.From
			}
		case err != nil:
			return nil, err
		case entry.key == keyCommit:
			committed, s.committed = len(records), reader.At()
			s.Stored, err = time.Parse(time.RFC3339Nano, string(entry.value))
			if err != nil {
				return nil, fmt.Errorf("%w: the time of a commit: %w", errDamaged, err)
			}
		default:
			records = append(records, entry)
		}
	}
	if s.size = reader.At(); s.committed == 0 {
		return nil, errDamaged
	}
	return records[:committed], nil
}
