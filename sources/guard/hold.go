package guard

import (
	"strconv"
	"time"

	"github.com/tidwall/btree"

	"tributary/memstore"
	"tributary/resource"
)

// loss is a key that loses endpoints, or its object.
type loss struct {
	key      resource.Key
	original *resource.Resource // before the loss
	desired  *resource.Resource // as the source wants it; nil if the object is gone
	served   *resource.Resource // in the table during the hold; nil until the loss is held
	held     int                // endpoints that are only served because of the hold
}

func (l loss) endpoints() int { return endpoints(l.original) - endpoints(l.desired) }

func (l loss) objects() int {
	if l.desired == nil {
		return 1
	}
	return 0
}

// lossesOf returns the puts and deletes that lose objects or endpoints, compared with the table or, for a held key,
// with the object before its loss.
func (h *hold) lossesOf(change Change, before memstore.Snapshot) (losses []loss) {
	add := func(key resource.Key, desired *resource.Resource) {
		current, held := h.get(key)
		if !held {
			current.original = before.Get(key)
		}
		current = loss{key: key, original: current.original, desired: desired}
		if current.original != nil && current.objects()+current.endpoints() > 0 {
			losses = append(losses, current)
		}
	}
	for _, r := range change.Puts {
		add(r.Key(), r)
	}
	for _, key := range change.Deletes {
		add(key, nil)
	}
	return losses
}

// hold is a held mass loss.
type hold struct {
	id         string
	begun      time.Time
	reason     string
	belowSince time.Time // since when it has been below the limits; zero if it is not

	lastJoined time.Time // when an unexplained or too large loss last joined; see Guard.join
	notJoined  window    // losses that did not join

	losses        *btree.BTreeG[loss] // by key; every key is in the table
	sum           tally               // over held
	surplus       int                 // endpoints of held objects that they did not have before the loss
	heldEndpoints int                 // the sum of loss.held; sum has less where new endpoints came
	changed       []resource.Key      // changed in held, and not yet in Guard.changed
}

// holdID returns a short ID for a hold. It differs from last, the ID of the hold before, even if both began at the same
// time.
func holdID(begun time.Time, last string) string {
	n := begun.UnixMilli()
	if before, err := strconv.ParseInt(last, 36, 64); err == nil && before >= n && before-n < 1000 {
		n = before + 1
	}
	return strconv.FormatInt(n, 36)
}

// split holds losses, and returns the change that passes, with the objects to serve for held keys. A passing key is no
// longer held.
func (h *hold) split(losses []loss, before memstore.Snapshot, change Change) (passes Change) {
	losing := make(map[resource.Key]bool, len(losses))
	for _, l := range losses {
		losing[l.key] = true
	}
	for _, object := range change.Puts {
		if !losing[object.Key()] {
			h.cancel(object.Key())
			passes.Puts = append(passes.Puts, object)
		}
	}
	for _, key := range change.Deletes {
		if !losing[key] {
			h.cancel(key)
			passes.Deletes = append(passes.Deletes, key)
		}
	}
	for _, l := range losses {
		if r := h.add(l); r != before.Get(l.key) {
			passes.Puts = append(passes.Puts, r)
		}
	}
	return passes
}

// add holds a loss, in place of an earlier loss of its key, and returns the object to serve: the original, joined with
// the desired object if possible.
func (h *hold) add(added loss) *resource.Resource {
	h.cancel(added.key)
	added.served, added.held = added.merge()
	if h.losses == nil {
		h.losses = btree.NewBTreeGOptions(func(a, b loss) bool { return a.key.Compare(b.key) < 0 },
			btree.Options{NoLocks: true})
	}
	h.losses.Set(added)
	h.count(added, 1)
	return added.served
}

// cancel forgets the loss of key.
func (h *hold) cancel(key resource.Key) {
	if l, ok := h.get(key); ok {
		h.losses.Delete(l)
		h.count(l, -1)
	}
}

func (h *hold) count(loss loss, sign int) {
	h.changed = append(h.changed, loss.key)
	h.sum.add(loss.key.Kind, sign*loss.objects(), sign*loss.endpoints())
	h.heldEndpoints += sign * loss.held
	h.surplus += sign * (endpoints(loss.served) - endpoints(loss.original))
}

func (h *hold) get(key resource.Key) (loss, bool) {
	if h.size() == 0 {
		return loss{}, false
	}
	return h.losses.Get(loss{key: key})
}

// size returns the number of keys held.
func (h *hold) size() int {
	if h == nil || h.losses == nil {
		return 0
	}
	return h.losses.Len()
}

// desired returns the change that makes the table as the source wants it.
func (h *hold) desired() (change Change) {
	for _, loss := range h.firstLosses(h.size()) {
		if loss.desired == nil {
			change.Deletes = append(change.Deletes, loss.key)
		} else {
			change.Puts = append(change.Puts, loss.desired)
		}
	}
	return change
}

// firstLosses returns the first n held losses, by key.
func (h *hold) firstLosses(n int) []loss {
	n = min(n, h.size())
	if n == 0 {
		return nil
	}
	losses := make([]loss, 0, n)
	h.losses.Scan(func(l loss) bool {
		losses = append(losses, l)
		return len(losses) < n
	})
	return losses
}
