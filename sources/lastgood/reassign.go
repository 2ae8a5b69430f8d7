package lastgood

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"tributary/internal/disk"
)

// Reassign exchanges the files of stores whose settings were exchanged, as when two sources trade their addresses: each
// gets the file that its settings made. Other stores keep their file. All stores need their reading (SetReading), and
// none may run.
func Reassign(stores []*Store) error {
	readings := make(map[*Store]string) // of the files; empty if unknown
	for _, store := range stores {
		readings[store] = store.fileReading()
	}
	var failures []error
	for _, store := range stores {
		wanted, present := store.reading(), readings[store]
		partner := slices.IndexFunc(stores, func(other *Store) bool {
			return readings[other] == wanted && other.reading() != wanted
		})
		if wanted == "" || present == "" || present == wanted || partner < 0 {
			continue
		}
		other := stores[partner]
		err := store.ownDir()
		if err == nil {
			err = exchange(store.path, other.path)
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("exchange the files of sources %s and %s: %w", store.source,
				other.source, err))
			continue
		}
		store.log.Info("the settings of two sources were exchanged: the stored objects follow them", "source", store.source,
			"other", other.source)
		readings[store], readings[other] = wanted, present
	}
	return errors.Join(failures...)
}

// exchange exchanges the files of two paths.
func exchange(first, second string) error {
	aside := first + disk.Unfinished
	if err := os.Rename(first, aside); err != nil {
		return err
	}
	if err := os.Rename(second, first); err != nil {
		return errors.Join(err, os.Rename(aside, first))
	}
	return os.Rename(aside, second)
}

// reading returns the identity of the settings of SetReading.
func (s *Store) reading() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.values[keyReading])
}

// fileReading returns the identity of the settings that made the file, its first record; empty if it is unknown.
func (s *Store) fileReading() string {
	file, err := os.Open(s.path)
	if err != nil {
		return ""
	}
	defer file.Close() //nolint:errcheck // only read
	reader, err := disk.FileReader(file)
	if err != nil {
		return ""
	}
	payload, err := reader.Next()
	if err != nil {
		return ""
	}
	if first, err := decodeRecord(payload); err == nil && first.key == keyReading {
		return string(first.value)
	}
	return ""
}
