package history

import (
	"io/fs"
	"iter"
	"strings"
	"time"

	"tributary/internal/disk"
	"tributary/memstore"
	"tributary/resource"
)

// begin records the differences between the objects that an earlier process served and a snapshot. If the earlier
// ones are not known, or changes were lost since an attempt that failed, it writes a base after a gap instead.
func (h *History) begin(snapshot memstore.Snapshot, now time.Time) {
	if missed := snapshot.Revision() - h.served.Revision(); h.failed && missed > 0 {
		h.files.invalidateBase()
		h.lost.Add(float64(missed))
		h.health.set(func(health *Health) { health.Lost += int(missed) })
	}
	h.served = snapshot
	changes := func(func(*Entry) bool) {}
	objects, intact := h.servedBefore()
	if objects != nil {
		changes = unwatchedChanges(objects, snapshot, now)
	}
	for range changes {
		if !intact { // a lost record may have the change
			objects = nil
		}
		break
	}
	if objects == nil {
		changes, h.gap = func(func(*Entry) bool) {}, now
	}
	h.write(now, changes)
	h.begun, h.gap = !h.failed, time.Time{} // after an error, the next commit begins again
}

// servedBefore returns the objects that the base and the records since then tell, or nil if they are not known. They
// are intact if none of these records is damaged. Damage at the end is no matter: the comparison finds the lost
// changes.
func (h *History) servedBefore() (objects map[resource.Key]*Object, intact bool) {
	base := h.files.base
	intact = true
	for _, segment := range h.files.segments {
		if segment.number == base.number && segment.size > 0 && base.size > 0 {
			objects = h.readBase(h.files.path(base.number, baseSuffix))
		}
	}
	for record := range h.records(h.files.segments) {
		intact = intact && (!record.damaged || record.segment < base.number || record.Mark != "")
		switch {
		case base.number == 0 && record.Mark != "":
			h.damaged(h.files.path(h.files.last().number, baseSuffix), fs.ErrNotExist)
		case objects == nil || record.segment < base.number:
		case record.Mark == "" && record.Kind != "":
			entry, err := record.entry()
			if err != nil {
				return nil, false
			}
			if objects[entry.Key()] = entry.New; entry.New == nil {
				delete(objects, entry.Key())
			}
		}
	}
	return objects, intact
}

// readBase returns the versions of the objects in a base, or nil if it is damaged.
func (h *History) readBase(path string) (objects map[resource.Key]*Object) {
	for text, err := range readFrames(path, h.files.base.size) {
		if err != nil {
			break
		}
		objects = make(map[resource.Key]*Object)
		for line := range strings.Lines(string(text)) {
			if words := strings.Split(strings.TrimSuffix(line, "\n"), "\x00"); len(words) == 4 {
				object := &Object{Version: words[3], versionOnly: true}
				object.Kind, object.Namespace, object.Name = resource.Kind(words[0]), words[1], words[2]
				objects[object.Key()] = object
			}
		}
	}
	if objects == nil {
		h.damaged(path, disk.ErrShort)
	}
	return objects
}

// unwatchedChanges yields the differences between earlier objects and a snapshot.
func unwatchedChanges(earlier map[resource.Key]*Object, snapshot memstore.Snapshot, now time.Time) iter.Seq[*Entry] {
	change := func(before, after *Object) *Entry {
		entry := newEntry(now, before, after)
		entry.Unwatched = true
		return entry
	}
	return func(yield func(*Entry) bool) {
		for res := range snapshot.All() {
			before := earlier[res.Key()]
			if (before == nil || before.Version != res.Version()) && !yield(change(before, NewObject(res))) {
				return
			}
		}
		for key, before := range earlier {
			if snapshot.Get(key) == nil && !yield(change(before, nil)) {
				return
			}
		}
	}
}
