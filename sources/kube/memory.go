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
	objects map[string]uint64 // by namespace/name, the resource version; 0 for one of an earlier run
	missing map[string]bool   // of objects, those held that the last list did not have
	seen    uint64            // the highest resource version that the server has named
	whole   bool              // a list was taken in this run: objects are all that the server had at the version seen
	until   time.Time         // before that, an object that is not listed is held
	why     string            // why it is
	older   time.Time         // since when lists are older than seen; zero if they are not
	absent  time.Time         // since when the server has no such kind; zero if it has
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
			return nil, fmt.Errorf("%w: its list is of resource version %d, and %d was seen; perhaps it lags", errOlder, version, m.seen)
		}
		m.hold(now.Add(hold), "the server went back in time, as after a restore")
	}
	m.older, m.seen, m.whole = time.Time{}, version, true
	m.missing = make(map[string]bool)
	for name := range m.objects {
		if _, there := listed[name]; there {
			continue
		}
		if now.Before(m.until) {
			m.missing[name] = true
			m.objects[name] = 0 // the version before means nothing if it comes back
			continue
		}
		gone = append(gone, name)
		delete(m.objects, name)
	}
	maps.Copy(m.objects, listed)
	return gone, nil
}

// isOlder reports whether a list is of a time before something that was seen. An object that is new has to be of a later version than all
// that was seen of a server whose objects are all known.
func (m *memory) isOlder(version uint64, listed map[string]uint64) bool {
	if version < m.seen {
		return true
	}
	for name, v := range listed {
		if before, known := m.objects[name]; v < before || m.whole && !known && v <= m.seen {
			return true
		}
	}
	return false
}

// advance notes a resource version of a watch.
func (m *memory) advance(version uint64) error {
	if version < m.seen {
		return fmt.Errorf("%w: resource version %d comes after %d", errOlder, version, m.seen)
	}
	m.seen = version
	return nil
}

func (m *memory) put(name string, version uint64) {
	m.objects[name] = version
	delete(m.missing, name)
}

func (m *memory) drop(name string) {
	delete(m.objects, name)
	delete(m.missing, name)
}

func (m *memory) hold(until time.Time, why string) {
	if until.After(m.until) {
		m.until, m.why = until, why
	}
}

// setAbsent notes whether the server has the kind, and returns which objects are gone since it has not had it for long.
func (m *memory) setAbsent(now time.Time, absent bool, hold time.Duration) (gone []string) {
	switch {
	case !absent && !m.absent.IsZero():
		m.absent = time.Time{}
		if len(m.objects) > 0 || !m.whole && m.seen > 0 {
			m.hold(now.Add(hold), "the kind was missing")
		}
	case absent && m.absent.IsZero():
		m.absent = now
		m.hold(now.Add(hold), "the kind is missing")
	case absent && !now.Before(m.until):
		for name := range m.objects {
			gone = append(gone, name)
		}
		clear(m.objects)
		clear(m.missing)
	}
	return gone
}

// held returns how many objects are held that the server does not have.
func (m *memory) held() int {
	if !m.absent.IsZero() {
		return len(m.objects)
	}
	return len(m.missing)
}
