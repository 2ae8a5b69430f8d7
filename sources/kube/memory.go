package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// memory is the state of one kind in one namespace, and decides which answers of the server are believed.
//
// A DELETED event removes an object. So does a complete list without it that is no older than any earlier answer. An older
// list comes from a server that lags, or from a restored cluster. It counts for nothing at first. If the server repeats it
// for the settle time, the cluster counts as restored: listed objects are taken, and missing ones stay for the hold. So do
// the objects of a kind that is missing.
type memory struct {
	note
	objects map[string]uint64 // by namespace/name, the resource version; 1 if an earlier run had it, 0 if it is in doubt
	unread  map[string]string // objects in doubt whose content is unknown, with the Service that each concerns, if known
	whole   bool              // this run took a list: objects are the server's at the version seen
	older   time.Time         // since when lists are older than seen; zero if they are not
	heard   time.Time         // when the server last confirmed the version seen
}

// note is the part of a memory that the next run needs.
type note struct {
	Seen   uint64    // the highest resource version of an answer
	Until  time.Time // before that, an object in doubt stays
	Why    string    // why it is in doubt
	Absent bool      // the server has no such kind
	Apart  bool      // the resource versions of the kind are not those of other kinds, as with an etcd of its own
	// Confirmed says that the kind was missing for a while although nothing had been seen of it.
	Confirmed bool `json:",omitempty"`

	Names []string                   `json:",omitempty"` // the objects
	Held  map[string]json.RawMessage `json:",omitempty"` // those in doubt; null if the content is not kept
}

// timeline is the sequence of resource versions that the kinds of a cluster share.
type timeline []*memory

// seen returns the highest version of any kind.
func (t timeline) seen() (version uint64) {
	for _, m := range t {
		if !m.Apart {
			version = max(version, m.Seen)
		}
	}
	return version
}

// restored puts the objects of all kinds in doubt: a kind that is listed later cannot see the restore any more.
func (t timeline) restored(from *memory, version uint64, until time.Time) {
	for _, m := range t {
		if m == from || !m.Apart && !from.Apart {
			m.Seen = min(m.Seen, version)
			m.doubt(until, "the server went back in time, as after a restore")
		}
	}
}

// errOlder says that the server named a resource version lower than one before.
var errOlder = errors.New("the server went back in time")

// judge takes the versions of a complete list that was requested when the cluster was at the version since. It removes
// unchanged objects from listed, and returns which objects are gone. An error says that the list counts for nothing.
func (m *memory) judge(
	t timeline, now time.Time, since, version uint64, listed map[string]uint64, settle, hold time.Duration,
) (gone []string, err error) {
	behind := !m.Apart && version < min(since, t.seen())
	if own := m.isOlder(version, listed); own || behind {
		if m.older.IsZero() {
			m.older = now
		}
		if now.Sub(m.older) < settle {
			return nil, fmt.Errorf("%w: its list is of resource version %d, and %d was seen; perhaps it lags", errOlder,
				version, max(m.Seen, since))
		}
		ahead := func(other *memory) bool { return !other.Apart && other.Seen > version && other.heard.After(m.older) }
		if m.Apart = m.Apart || !own && slices.ContainsFunc(t, ahead); own || !m.Apart {
			t.restored(m, version, now.Add(hold))
		}
	}
	m.older, m.Seen, m.heard = time.Time{}, version, now
	gone = m.accept(now, listed)
	for name, v := range listed {
		if delete(m.unread, name); m.objects[name] == v {
			delete(listed, name)
		}
		m.objects[name] = v
	}
	m.whole = true
	return gone, nil
}

// isOlder reports whether a list is of a time before something that was seen. An object that is new has to be of a later version than all
// that was seen of a server whose objects are all known.
func (m *memory) isOlder(version uint64, listed map[string]uint64) bool {
	if version < m.Seen {
		return true
	}
	for name, v := range listed {
		if before, known := m.objects[name]; v < before || m.whole && !known && v <= m.Seen {
			return true
		}
	}
	return false
}

// accept removes the objects that are not listed, but for those in doubt, and returns them.
func (m *memory) accept(now time.Time, listed map[string]uint64) (gone []string) {
	for name, version := range m.objects {
		if _, there := listed[name]; !there && (version > 0 || !now.Before(m.Until)) {
			gone = append(gone, name)
			m.forget(name)
		}
	}
	return gone
}

func (m *memory) forget(name string) {
	delete(m.objects, name)
	delete(m.unread, name)
}

// doubt puts all objects in doubt, if there are any.
func (m *memory) doubt(until time.Time, why string) {
	for name := range m.objects {
		m.objects[name] = 0 // the version before means nothing if it comes back
	}
	if len(m.objects) > 0 && until.After(m.Until) {
		m.Until, m.Why = until, why
	}
}

// setAbsent notes whether the server has the kind, and returns which objects are gone since it has not had it for long.
func (m *memory) setAbsent(now time.Time, absent bool, hold time.Duration) (gone []string) {
	if absent != m.Absent {
		m.doubt(now.Add(hold), "the kind is or was missing")
	}
	if m.Absent = absent; absent {
		gone = m.accept(now, nil)
	}
	return gone
}

// held returns how many objects stay that the server does not have.
func (m *memory) held() (n int) {
	if !m.whole && !m.Absent {
		return 0
	}
	for _, version := range m.objects {
		if version == 0 {
			n++
		}
	}
	return n
}

// firstInDoubt returns the first name of the objects in doubt.
func (m *memory) firstInDoubt() (first string) {
	for name, version := range m.objects {
		if version == 0 && (first == "" || name < first) {
			first = name
		}
	}
	return first
}
