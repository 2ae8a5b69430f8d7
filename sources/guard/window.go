package guard

import (
	"slices"
	"time"

	"tributary/resource"
)

// window has the recent losses that passed and have not come back. The zero value is empty.
type window struct {
	byKey   map[resource.Key]keyLoss
	queue   []queued  // oldest first; see isCurrent
	earlier []lossSum // of an earlier run of the program; oldest first

	sum tally // over byKey and earlier
}

type keyLoss struct {
	at       time.Time // when it last lost something
	gone     bool
	had, has int // endpoints
}

type queued struct {
	at  time.Time
	key resource.Key
}

// lossSum is what was lost at about one time, as it is saved for a restart.
type lossSum struct {
	At        time.Time     `json:"at"`
	Kind      resource.Kind `json:"kind"`
	Objects   int           `json:"objects,omitempty"`
	Endpoints int           `json:"endpoints,omitempty"`
}

// note records a change of key: whether it is gone, and how many endpoints it had and has.
func (w *window) note(key resource.Key, gone bool, had, has int, now time.Time) {
	old, known := w.byKey[key]
	next := keyLoss{at: now, gone: gone, had: max(had, old.had), has: has}
	loses := gone || has < had
	switch {
	case !known && !loses:
		return
	case known:
		w.remove(key)
		if !loses {
			next.at = old.at
		}
	}
	if !gone && next.has >= next.had {
		return // all of it is back
	}
	if w.byKey == nil {
		w.byKey = make(map[resource.Key]keyLoss)
	}
	w.byKey[key] = next
	w.count(key.Kind, next, 1)
	if !known || loses {
		w.queue = append(w.queue, queued{now, key})
		w.compact()
	}
}

// forget removes losses before a time.
func (w *window) forget(before time.Time) {
	n := 0
	for n < len(w.queue) && w.queue[n].at.Before(before) {
		if e := w.queue[n]; w.isCurrent(e) {
			w.remove(e.key)
		}
		n++
	}
	w.queue = slices.Delete(w.queue, 0, n)
	n = 0
	for n < len(w.earlier) && w.earlier[n].At.Before(before) {
		w.sum.add(w.earlier[n].Kind, -w.earlier[n].Objects, -w.earlier[n].Endpoints)
		n++
	}
	w.earlier = slices.Delete(w.earlier, 0, n)
}

// compact keeps the queue in proportion to byKey, as a key that comes and goes enters it each time.
func (w *window) compact() {
	if len(w.queue) > 2*len(w.byKey)+64 {
		w.queue = slices.DeleteFunc(w.queue, func(e queued) bool { return !w.isCurrent(e) })
	}
}

// isCurrent reports whether e is the newest loss of its key.
func (w *window) isCurrent(e queued) bool {
	l, ok := w.byKey[e.key]
	return ok && l.at.Equal(e.at)
}

func (w *window) remove(key resource.Key) {
	w.count(key.Kind, w.byKey[key], -1)
	delete(w.byKey, key)
}

func (w *window) count(kind resource.Kind, l keyLoss, sign int) {
	objects := 0
	if l.gone {
		objects = sign
	}
	w.sum.add(kind, objects, sign*(l.had-l.has))
}

// summary sums the losses per step of time, oldest first.
func (w *window) summary(step time.Duration) []lossSum {
	type slot struct {
		at   time.Time
		kind resource.Kind
	}
	sums := make(map[slot]lossSum)
	add := func(at time.Time, kind resource.Kind, objects, endpoints int) {
		at = at.UTC().Truncate(step)
		d := sums[slot{at, kind}]
		sums[slot{at, kind}] = lossSum{at, kind, d.Objects + objects, d.Endpoints + endpoints}
	}
	for _, d := range w.earlier {
		add(d.At, d.Kind, d.Objects, d.Endpoints)
	}
	for key, l := range w.byKey {
		objects := 0
		if l.gone {
			objects = 1
		}
		add(l.at, key.Kind, objects, l.had-l.has)
	}
	all := make([]lossSum, 0, len(sums))
	for _, d := range sums {
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b lossSum) int {
		if c := a.At.Compare(b.At); c != 0 {
			return c
		}
		return resource.Key{Kind: a.Kind}.Compare(resource.Key{Kind: b.Kind})
	})
	return all
}

// restore adds the losses of an earlier run. Those in the future, as the clock stepped back, count as of now.
func (w *window) restore(all []lossSum, now time.Time) {
	for _, d := range all {
		if d.At.After(now) {
			d.At = now
		}
		w.earlier = append(w.earlier, d)
		w.sum.add(d.Kind, d.Objects, d.Endpoints)
	}
}
