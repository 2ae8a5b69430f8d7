package lastgood

import (
	"maps"
	"slices"
	"sync"

	"go.etcd.io/bbolt"
)

// Print identifies what a group of a source held and what made it so. The zero Print is none.
type Print struct {
	Sum  [16]byte
	Said string // what else there is to know of the group, as the one who made the print writes it
}

// bucketPrints has the prints of groups. It may lack any, and have those of another state than the objects: who reads
// them compares.
var bucketPrints = []byte("prints")

// prints are those of the groups of a source, and which of them are still to be written. They are safe for concurrent use.
type prints struct {
	mu    sync.Mutex
	all   map[string]Print
	dirty map[string]struct{}
	whole bool // everything is to be written
}

// set makes p the print of group, and reports whether that is news.
func (s *prints) set(group string, p Print) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[group] == p {
		return false
	}
	if s.all == nil {
		s.all, s.dirty = make(map[string]Print), make(map[string]struct{})
	}
	if p == (Print{}) {
		delete(s.all, group)
	} else {
		s.all[group] = p
	}
	s.dirty[group] = struct{}{}
	return true
}

// restore takes over what was read from a file.
func (s *prints) restore(all map[string]Print) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all, s.dirty = all, make(map[string]struct{})
}

// take returns, once, the prints to be written; a zero one is to be removed.
func (s *prints) take() map[string]Print {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.whole {
		clear(s.dirty)
		s.whole = false
		return maps.Clone(s.all)
	}
	changed := make(map[string]Print, len(s.dirty))
	for group := range s.dirty {
		changed[group] = s.all[group]
	}
	clear(s.dirty)
	return changed
}

// again has everything written the next time.
func (s *prints) again() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.whole = true
}

// writePrints writes changed, in the order in which they stand in the file.
func writePrints(tx *bbolt.Tx, changed map[string]Print) error {
	if len(changed) == 0 {
		return nil
	}
	bucket, err := tx.CreateBucketIfNotExists(bucketPrints)
	if err != nil {
		return err
	}
	for _, group := range slices.Sorted(maps.Keys(changed)) {
		key, p := []byte(group), changed[group]
		if p == (Print{}) {
			err = bucket.Delete(key)
		} else {
			err = bucket.Put(key, seal(key, append(p.Sum[:], p.Said...)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readPrints reads a bucket of them.
func readPrints(bucket content) (map[string]Print, error) {
	all := make(map[string]Print)
	err := bucket(func(key, record []byte) error {
		message, err := unseal(key, record)
		if err != nil {
			return err
		}
		var p Print
		n := copy(p.Sum[:], message)
		if n < len(p.Sum) {
			return damaged("the print of %q has %d bytes", key, len(message))
		}
		p.Said = string(message[n:])
		all[string(key)] = p
		return nil
	})
	return all, err
}
