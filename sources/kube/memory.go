package kube

import (
	"errors"
	"fmt"
	"maps"
	"time"
)

// memory is what is known of the objects of one kind in one namespace, and decides what is believed of the server's answers.
//
// A deletion is believed from a DELETED event, and from a complete list that is no older than anything seen before. If a list is older, it
// comes from a server that lags or from a cluster that was restored. It counts for nothing for a while; if the server still says the same
// then, what it has is taken, and what it does not have is held. The same is held while the kind is missing, and after it came back.
type memory struct {
	note
	objects map[string]uint64 // by namespace/name, the resource version; 0 for one of an earlier run, and for one that is held
	whole   bool              // a list was taken in this run: objects are all that the server had at the version seen
	older   time.Time         // since when lists are older than seen; zero if they are not
	unsure  time.Time         // until then, what was taken first in this run may lack something that is held
}

// note is what the next run has to know of a memory.
type note struct {
	Seen   uint64    // the highest resource version that the server has named
	Until  time.Time // before that, an object that is not listed is held
	Why    string    // why it is
	Absent bool      // the server has no such kind
	// Confirmed says that several looks found it so while nothing had been seen.
	Confirmed bool `json:",omitempty"`
}

// errOlder says that the server named a resource version lower than one before.
var errOlder = errors.New("the server went back in time")

// judge takes the versions of a complete list, and returns which objects are gone. An error says that the list counts for nothing.
func (m *memory) judge(now time.Time, version uint64, listed map[string]uint64, settle, hold time.Duration) (gone []string, err error) {
	if m.isOlder(version, listed) {
		if m.older.IsZero() {
			m.older = now
		}
		if now.Sub(m.older) < settle {
			return nil, fmt.Errorf("%w: its list is of resource version %d, and %d was seen; perhaps it lags", errOlder, version, m.Seen)
		}
		m.hold(now.Add(hold), "the server went back in time, as after a restore")
	}
	m.older, m.Seen = time.Time{}, version
	gone = m.accept(now, listed)
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

// accept makes what is listed the objects, with those that are held, and returns the others.
func (m *memory) accept(now time.Time, listed map[string]uint64) (gone []string) {
	if !m.whole && m.Seen > 0 {
		m.unsure = m.Until
	}
	for name := range m.objects {
		if _, there := listed[name]; there {
			continue
		}
		if now.Before(m.Until) {
			m.objects[name] = 0 // the version before means nothing if it comes back
			continue
		}
		gone = append(gone, name)
		delete(m.objects, name)
	}
	maps.Copy(m.objects, listed)
	return gone
}

func (m *memory) hold(until time.Time, why string) {
	if until.After(m.Until) {
		m.Until, m.Why = until, why
	}
}

// setAbsent notes whether the server has the kind, and returns which objects are gone since it has not had it for long.
func (m *memory) setAbsent(now time.Time, absent bool, hold time.Duration) (gone []string) {
	if absent != m.Absent && (len(m.objects) > 0 || !m.whole && m.Seen > 0) {
		m.hold(now.Add(hold), "the kind is or was missing")
	}
	if m.Absent = absent; absent {
		if gone = m.accept(now, nil); !now.Before(m.Until) {
			m.Seen = 0 // nothing is left that another outage or run would have to wait for
		}
	}
	return gone
}

// held returns how many objects are held that the server does not have.
func (m *memory) held() (n int) {
	if m.Until.IsZero() || !m.whole && !m.Absent {
		return 0
	}
	for _, version := range m.objects {
		if version == 0 {
			n++
		}
	}
	return n
}
