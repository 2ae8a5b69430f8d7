package lastgood

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"tributary/internal/disk"
)

// Reassign gives stores with exchanged settings the files that their settings made, as when two sources trade their
// addresses. Other stores keep their file. All stores need their reading (SetReading), and none may run.
func Reassign(stores []*Store) error {
	readings := make(map[*Store]string) // of the files; empty if unknown
	for _, store := range stores {
		readings[store] = store.fileReading()
	}
	var failures []error
	for _, store := range stores {
		wanted, present := store.reading(), readings[store]
		index := slices.IndexFunc(stores, func(owner *Store) bool {
			return readings[owner] == wanted && owner.reading() != wanted
		})
		if wanted == "" || present == "" || present == wanted || index < 0 {
			continue
		}
		owner := stores[index]
		err := store.ownDir()
		if err == nil {
			err = exchange(store.path, owner.path)
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("exchange the files of sources %s and %s: %w", store.source,
				owner.source, err))
			continue
		}
		store.log.Info("the settings of two sources were exchanged: the stored objects follow them", "source", store.source,
			"former", owner.source)
		readings[store], readings[owner] = wanted, present
		unread := store.unreadError() // goes with the file
		store.setUnread(owner.unreadError())
		owner.setUnread(unread)
	}
	return errors.Join(failures...)
}

// exchange exchanges the files of two paths: in one step where the file system can, else by way of a third path.
func exchange(first, second string) error {
	if swap(first, second) == nil {
		return nil
	}
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
