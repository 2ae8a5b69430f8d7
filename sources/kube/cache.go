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
// So do the objects of a missing kind.
type cache struct {
	note
	objects       presence.Set[uint64] // resource versions by namespace/name; 1 if an earlier run had it
	unread        map[string]string    // objects in doubt with unknown content, with their Service, if known
	isListed      bool                 // this run took a list: objects are the server's at version Seen
	rollbackSince time.Time            // the first of a series of lists older than Seen; zero without one
	confirmedAt   time.Time            // the last confirmation of version Seen
}

// note is the part of a cache that the next run needs.
type note struct {
	Seen               uint64 // the highest resource version of an answer
	Absent             bool   // the server has no such kind
	Apart              bool   // the resource versions of the kind are not those of other kinds, as with an etcd of its own
	presence.Suspicion        // of the objects in doubt
	// Confirmed says that the kind, of which no object was ever seen, was missing for a while.
	Confirmed bool `json:",omitempty"`

	Names []string                   `json:",omitempty"` // the objects
	Held  map[string]json.RawMessage `json:",omitempty"` // objects in doubt; null without content
}

// timeline is the sequence of resource versions that the kinds of a cluster share.
type timeline []*cache

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
func (t timeline) restored(from *cache, version uint64, now time.Time, hold time.Duration) {
	for _, cache := range t {
		if cache == from || !cache.Apart && !from.Apart {
			cache.Seen = min(cache.Seen, version)
			cache.holdAll(now, hold, "the server went back in time, as after a restore")
		}
	}
}

// errOlder says that the server named a resource version lower than one before.
var errOlder = errors.New("the server went back in time")

// checkList takes the versions of a complete list that was requested at version requestedAt of the cluster, and returns
// the deleted objects. With an error, the list is ignored.
func (c *cache) checkList(
	timeline timeline, now time.Time, requestedAt, version uint64, listed map[string]uint64, settle, hold time.Duration,
) (deleted []string, err error) {
	behind := !c.Apart && version < min(requestedAt, timeline.seen())
	if rolledBack := c.isOlder(version, listed); rolledBack || behind {
		if c.rollbackSince.IsZero() {
			c.rollbackSince = now
		}
		if now.Sub(c.rollbackSince) < settle {
			return nil, fmt.Errorf("%w: its list is of resource version %d, and %d was seen; perhaps it lags", errOlder,
				version, max(c.Seen, requestedAt))
		}
		ahead := func(sibling *cache) bool {
			return !sibling.Apart && sibling.Seen > version && sibling.confirmedAt.After(c.rollbackSince)
		}
		if c.Apart = c.Apart || !rolledBack && slices.ContainsFunc(timeline, ahead); rolledBack || !c.Apart {
			timeline.restored(c, version, now, hold)
		}
	}
	c.rollbackSince, c.Seen, c.confirmedAt = time.Time{}, version, now
	for name := range listed {
		delete(c.unread, name)
	}
	c.isListed = true
	return c.applyList(now, listed), nil
}

// isOlder reports whether a list is older than an earlier answer. If all objects of the server are known, a new object
// must have a later version than all of them.
func (c *cache) isOlder(version uint64, listed map[string]uint64) bool {
	if version < c.Seen {
		return true
	}
	for name, v := range listed {
		if before, isKnown := c.objects[name]; v < before.Value || c.isListed && !isKnown && v <= c.Seen {
			return true
		}
	}
	return false
}

// applyList applies a complete list, and returns the deleted objects.
func (c *cache) applyList(now time.Time, listed map[string]uint64) (deleted []string) {
	deleted = c.objects.Fold(listed, c.Holds(now))
	for _, name := range deleted {
		c.forget(name)
	}
	return deleted
}

func (c *cache) forget(name string) {
	delete(c.objects, name)
	delete(c.unread, name)
}

// holdAll puts all objects in doubt. Their versions have no meaning if they come back.
func (c *cache) holdAll(now time.Time, hold time.Duration, reason string) {
	if len(c.objects) > 0 {
		c.objects.Hold(slices.Collect(maps.Keys(c.objects))...)
		c.Suspicion = presence.Suspect(now, hold, reason)
	}
}

// setAbsent notes whether the server has the kind, and returns the objects of a kind that is missing for too long.
func (c *cache) setAbsent(now time.Time, absent bool, hold time.Duration) (deleted []string) {
	if absent != c.Absent {
		c.holdAll(now, hold, "the kind is or was missing")
	}
	if c.Absent = absent; absent {
		deleted = c.applyList(now, nil)
	}
	return deleted
}

// held returns the objects that stay and that the server lacks, in order.
func (c *cache) held() []string {
	if !c.isListed && !c.Absent {
		return nil
	}
	return c.objects.Held()
}
