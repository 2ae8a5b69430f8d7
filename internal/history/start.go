package history

import (
	"iter"
	"slices"
	"time"

	"tributary/memstore"
	"tributary/resource"
)

// begin records the differences between the objects that an earlier process served and a snapshot. If the earlier
// objects are uncertain, it writes a base after a gap instead. After an error, the next commit begins after a gap.
func (h *History) begin(snapshot memstore.Snapshot, now time.Time) {
	if failed := h.served.Revision(); failed > 0 {
		h.lose(int(snapshot.Revision() - failed))
	}
	h.served = snapshot
	objects, damaged := h.servedBefore()
	changes := unwatchedChanges(objects, snapshot, now)
	unknown := objects == nil
	for range changes { // there is a difference, which may be one of the damaged records
		unknown = unknown || damaged
		break
	}
	if unknown {
		h.gap = now
		changes = slices.Values([]*Entry(nil))
	}
	err := h.write(now, changes)
	h.begun = err == nil
	h.gap = time.Time{}
	if err != nil {
		h.files.setBase(segment{})
	}
}

// servedBefore returns the objects that the newest base and the records after it give, or nil if changes were lost
// after the base. It also reports whether some of these records are damaged.
func (h *History) servedBefore() (objects map[resource.Key]*Object, damaged bool) {
	var records []*Entry // the base, and those since then
	for record := range h.records(h.files.segments) {
		damaged = damaged || record.gap
		if record.Event == "" && len(record.packed) > 0 {
			records = []*Entry{record}
			damaged = false
		} else if len(records) > 0 {
			records = append(records, record)
		}
	}
	if h.files.base.number == 0 || len(records) == 0 {
		return nil, damaged
	}
	h.files.base.size = int64(len(records[0].packed))
	objects = make(map[resource.Key]*Object)
	for _, record := range records {
		unpacked, err := record.unpack()
		if err != nil {
			return nil, damaged
		}
		switch {
		case record.Event == "":
			for _, object := range unpacked {
				object.versionOnly = true
				objects[object.Key()] = object
			}
		case record.New == nil:
			delete(objects, record.Key())
		default:
			objects[record.Key()] = record.New
		}
	}
	return objects, damaged
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
