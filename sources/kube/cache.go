package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"tributary/sources/presence"
)

// cache is the state of one kind in one namespace. It decides which answers of the server are trusted.
//
// A DELETED event removes an object. So does a complete list without it that is no older than any earlier answer. An
// older list comes from a server that lags, or from a restored cluster, and is ignored at first. If the server repeats
// it for the settle time, the cluster counts as restored: listed objects are taken, and missing ones stay for the hold.
// The objects of a missing kind stay for the hold, too.
type cache struct {
	seen             uint64             // the highest resource version of an answer
	absent           bool               // the server has no such kind
	absenceConfirmed bool               // the kind was missing for confirmTime, and no object of it was ever seen
	ownVersions      bool               // the kind is in another etcd: its versions cannot be compared with other kinds'
	suspicion        presence.Suspicion // holds the objects in doubt

	objects        presence.Set[uint64] // resource versions by namespace/name; 1 if an earlier run had it
	contentUnknown map[string]string    // objects in doubt with unknown content, with their Service; "" if unknown
	hasList        bool                 // this run took a list: objects are the server's at version seen
	rollbackSince  time.Time            // the first of a series of lists older than seen; zero without one
	confirmedAt    time.Time            // the last confirmation of version seen
}

func newCache() cache {
	return cache{objects: make(presence.Set[uint64]), contentUnknown: make(map[string]string)}
}

// note is the part of a cache that the next run needs.
type note struct {
	Seen               uint64
	Absent             bool
	OwnVersions        bool `json:"Apart"`
	presence.Suspicion      // embedded for its JSON fields
	AbsenceConfirmed   bool `json:"Confirmed,omitempty"`

	Names []string                   `json:",omitempty"` // the objects
	Held  map[string]json.RawMessage `json:",omitempty"` // objects in doubt; null without content
}

// note returns the note without the content of objects in doubt.
func (c *cache) note() note {
	return note{
		Seen:             c.seen,
		Absent:           c.absent,
		OwnVersions:      c.ownVersions,
		Suspicion:        c.suspicion,
		AbsenceConfirmed: c.absenceConfirmed,
		Names:            slices.Sorted(maps.Keys(c.objects)),
	}
}

// restore applies the note of an earlier run, apart from the objects.
func (c *cache) restore(note note) {
	c.seen = note.Seen
	c.absent = note.Absent
	c.ownVersions = note.OwnVersions
	c.suspicion = note.Suspicion
	c.absenceConfirmed = note.AbsenceConfirmed
}

// timeline is the sequence of resource versions that the kinds of a cluster share.
type timeline []*cache

// seen returns the highest version of any kind.
func (t timeline) seen() (version uint64) {
	for _, cache := range t {
		if !cache.ownVersions {
			version = max(version, cache.seen)
		}
	}
	return version
}

// holdRestored puts the objects of all kinds in doubt after a restore that the list of one kind showed: a kind that is
// listed later cannot see the restore any more.
func (t timeline) holdRestored(from *cache, version uint64, now time.Time, hold time.Duration) {
	for _, cache := range t {
		if cache == from || !cache.ownVersions && !from.ownVersions {
			cache.seen = min(cache.seen, version)
			cache.holdAll(now, hold, "the server went back in time, as after a restore")
		}
	}
}

// errOlder says that the server named a resource version lower than one before.
var errOlder = errors.New("the server went back in time")

// list is a complete list of the objects of a kind.
type list struct {
	requestedAt uint64 // version of the cluster at the request
	version     uint64
	objects     map[string]uint64 // versions of the objects
}

// checkList applies a list, and returns the deleted objects. With an error, the list is ignored.
func (c *cache) checkList(
	timeline timeline, now time.Time, list list, settle, hold time.Duration,
) (deleted []string, err error) {
	behind := !c.ownVersions && list.version < min(list.requestedAt, timeline.seen())
	rolledBack := c.isOlder(list)
	if rolledBack || behind {
		if c.rollbackSince.IsZero() {
			c.rollbackSince = now
		}
		if now.Sub(c.rollbackSince) < settle {
			return nil, fmt.Errorf("%w: its list is of resource version %d, and %d was seen; perhaps it lags", errOlder,
				list.version, max(c.seen, list.requestedAt))
		}
		ahead := func(sibling *cache) bool {
			return !sibling.ownVersions && sibling.seen > list.version && sibling.confirmedAt.After(c.rollbackSince)
		}
		c.ownVersions = c.ownVersions || !rolledBack && slices.ContainsFunc(timeline, ahead)
		if rolledBack || !c.ownVersions {
			timeline.holdRestored(c, list.version, now, hold)
		}
	}
	c.rollbackSince = time.Time{}
	c.seen = list.version
	c.confirmedAt = now
	c.hasList = true
	for name := range list.objects {
		delete(c.contentUnknown, name)
	}
	return c.applyList(now, list.objects), nil
}

// isOlder reports whether a list is older than an earlier answer. If all objects of the server are known, a new object
// must have a later version than all of them.
func (c *cache) isOlder(list list) bool {
	if list.version < c.seen {
		return true
	}
	for name, version := range list.objects {
		before, exists := c.objects[name]
		if version < before.Value || c.hasList && !exists && version <= c.seen {
			return true
		}
	}
	return false
}

// applyList applies a complete list, and returns the deleted objects.
func (c *cache) applyList(now time.Time, listed map[string]uint64) (deleted []string) {
	deleted = c.objects.Fold(listed, c.suspicion.Holds(now))
	for _, name := range deleted {
		c.forget(name)
	}
	return deleted
}

func (c *cache) forget(name string) {
	delete(c.objects, name)
	delete(c.contentUnknown, name)
}

// holdAll puts all objects in doubt. Their versions have no meaning if they come back.
func (c *cache) holdAll(now time.Time, hold time.Duration, reason string) {
	if len(c.objects) > 0 {
		c.objects.Hold(slices.Collect(maps.Keys(c.objects))...)
		c.suspicion = presence.Suspect(now, hold, reason)
	}
}

// setAbsent notes whether the server lacks the kind, and returns the objects of a kind that is missing for too long.
func (c *cache) setAbsent(now time.Time, absent bool, hold time.Duration) (deleted []string) {
	if absent != c.absent {
		c.holdAll(now, hold, "the kind is or was missing")
	}
	c.absent = absent
	if absent {
		deleted = c.applyList(now, nil)
	}
	return deleted
}

// held returns the objects that stay although the server lacks them, in order.
func (c *cache) held() []string {
	if !c.hasList && !c.absent {
		return nil
	}
	return c.objects.Held()
}
