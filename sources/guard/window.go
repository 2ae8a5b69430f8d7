package guard

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"tributary/resource"
)

// window has the recent losses that passed, without objects that came back. The zero value is empty.
type window struct {
	byKey    map[resource.Key]keyLoss
	queue    []queueEntry // oldest first; see isCurrent
	restored []lossSum    // of an earlier run of the program; oldest first

	sum tally // over byKey and restored
}

type keyLoss struct {
	lastLoss          time.Time // when it last lost something
	missing           bool
	previous, present int // endpoints
}

func (l keyLoss) objects() int {
	if l.missing {
		return 1
	}
	return 0
}

type queueEntry struct {
	noted time.Time
	key   resource.Key
}

// lossSum is the sum of losses within a step of time, as it is saved for a restart.
type lossSum struct {
	Time      time.Time     `json:"at"`
	Kind      resource.Kind `json:"kind"`
	Objects   int           `json:"objects,omitempty"`
	Endpoints int           `json:"endpoints,omitempty"`
}

// note records a change of key: whether its object is missing, and its previous and present number of endpoints.
func (w *window) note(key resource.Key, missing bool, previous, present int, now time.Time) {
	old, isNoted := w.byKey[key]
	next := keyLoss{lastLoss: now, missing: missing, previous: max(previous, old.previous), present: present}
	loses := missing || present < previous
	switch {
	case !isNoted && !loses:
		return
	case isNoted:
		w.remove(key)
		if !loses {
			next.lastLoss = old.lastLoss
		}
	}
	if !missing && next.present >= next.previous {
		return // the whole loss is back
	}
	if w.byKey == nil {
		w.byKey = make(map[resource.Key]keyLoss)
	}
	w.byKey[key] = next
	w.count(key.Kind, next, 1)
	if !isNoted || loses {
		w.queue = append(w.queue, queueEntry{now, key})
		w.compact()
	}
}

// forget removes losses before a time.
func (w *window) forget(before time.Time) {
	n := 0
	for n < len(w.queue) && w.queue[n].noted.Before(before) {
		if e := w.queue[n]; w.isCurrent(e) {
			w.remove(e.key)
		}
		n++
	}
	w.queue = slices.Delete(w.queue, 0, n)
	n = 0
	for n < len(w.restored) && w.restored[n].Time.Before(before) {
		w.sum.add(w.restored[n].Kind, -w.restored[n].Objects, -w.restored[n].Endpoints)
		n++
	}
	w.restored = slices.Delete(w.restored, 0, n)
}

// compact keeps the queue in proportion to byKey, as a key that comes and goes enters it each time.
func (w *window) compact() {
	if len(w.queue) > 2*len(w.byKey)+64 {
		w.queue = slices.DeleteFunc(w.queue, func(e queueEntry) bool { return !w.isCurrent(e) })
	}
}

// isCurrent reports whether e is the newest loss of its key.
func (w *window) isCurrent(e queueEntry) bool {
	l, ok := w.byKey[e.key]
	return ok && l.lastLoss.Equal(e.noted)
}

func (w *window) remove(key resource.Key) {
	w.count(key.Kind, w.byKey[key], -1)
	delete(w.byKey, key)
}

func (w *window) count(kind resource.Kind, l keyLoss, sign int) {
	w.sum.add(kind, sign*l.objects(), sign*(l.previous-l.present))
}

// summary sums the losses per step of time, oldest first.
func (w *window) summary(step time.Duration) []lossSum {
	type slot struct {
		begin time.Time
		kind  resource.Kind
	}
	bySlot := make(map[slot]lossSum)
	add := func(lossTime time.Time, kind resource.Kind, objects, endpoints int) {
		lossTime = lossTime.UTC().Truncate(step)
		sum := bySlot[slot{lossTime, kind}]
		bySlot[slot{lossTime, kind}] = lossSum{lossTime, kind, sum.Objects + objects, sum.Endpoints + endpoints}
	}
	for _, sum := range w.restored {
		add(sum.Time, sum.Kind, sum.Objects, sum.Endpoints)
	}
	for key, l := range w.byKey {
		add(l.lastLoss, key.Kind, l.objects(), l.previous-l.present)
	}
	return slices.SortedFunc(maps.Values(bySlot), func(a, b lossSum) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Kind, b.Kind))
	})
}

// restore adds the losses of an earlier run. Those in the future, as the clock stepped back, count as of now.
func (w *window) restore(sums []lossSum, now time.Time) {
	for _, sum := range sums {
		if sum.Time.After(now) {
			sum.Time = now
		}
		w.restored = append(w.restored, sum)
		w.sum.add(sum.Kind, sum.Objects, sum.Endpoints)
	}
}
