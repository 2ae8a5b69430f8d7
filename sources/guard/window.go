package guard

import (
	"slices"
	"time"

	"tributary/resource"
)

// window has the losses of the last while that were let through and have not come back. The zero value is empty.
type window struct {
	lost    map[resource.Key]lost
	queue   []departure // oldest first; those that do not fit to lost are obsolete
	earlier []departed  // of an earlier run of the program; oldest first

	sum tally // over lost and earlier
}

// lost is what a key has lost.
type lost struct {
	at     time.Time // the last time that it lost something
	gone   bool
	had, n int // endpoints before, and now
}

type departure struct {
	at  time.Time
	key resource.Key
}

// departed is what was lost at about one time, without names, as it is kept over a restart.
type departed struct {
	At        time.Time     `json:"at"`
	Kind      resource.Kind `json:"kind"`
	Objects   int           `json:"objects,omitempty"`
	Endpoints int           `json:"endpoints,omitempty"`
}

// note enters a change of key: whether it is gone, and how many endpoints it had and has.
func (w *window) note(key resource.Key, gone bool, had, has int, now time.Time) {
	old, known := w.lost[key]
	next := lost{at: now, gone: gone, had: max(had, old.had), n: has}
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
	if !gone && next.n >= next.had {
		return // it is all back
	}
	if w.lost == nil {
		w.lost = make(map[resource.Key]lost)
	}
	w.lost[key] = next
	w.count(key.Kind, next, 1)
	if !known || loses {
		w.queue = append(w.queue, departure{now, key})
		w.compact()
	}
}

// forget removes what was lost before a time.
func (w *window) forget(before time.Time) {
	n := 0
	for n < len(w.queue) && w.queue[n].at.Before(before) {
		if e := w.queue[n]; w.fits(e) {
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

// compact keeps the queue in proportion to what is lost, though a key that comes and goes enters it each time.
func (w *window) compact() {
	if len(w.queue) > 2*len(w.lost)+64 {
		w.queue = slices.DeleteFunc(w.queue, func(e departure) bool { return !w.fits(e) })
	}
}

func (w *window) fits(e departure) bool {
	l, ok := w.lost[e.key]
	return ok && l.at.Equal(e.at)
}

func (w *window) remove(key resource.Key) {
	w.count(key.Kind, w.lost[key], -1)
	delete(w.lost, key)
}

func (w *window) count(kind resource.Kind, l lost, sign int) {
	objects := 0
	if l.gone {
		objects = sign
	}
	w.sum.add(kind, objects, sign*(l.had-l.n))
}

// summary returns the losses to within a step of time, oldest first: however many there are, it is short.
func (w *window) summary(step time.Duration) []departed {
	type slot struct {
		at   time.Time
		kind resource.Kind
	}
	sums := make(map[slot]departed)
	enter := func(at time.Time, kind resource.Kind, objects, endpoints int) {
		at = at.UTC().Truncate(step)
		d := sums[slot{at, kind}]
		sums[slot{at, kind}] = departed{at, kind, d.Objects + objects, d.Endpoints + endpoints}
	}
	for _, d := range w.earlier {
		enter(d.At, d.Kind, d.Objects, d.Endpoints)
	}
	for key, l := range w.lost {
		objects := 0
		if l.gone {
			objects = 1
		}
		enter(l.at, key.Kind, objects, l.had-l.n)
	}
	all := make([]departed, 0, len(sums))
	for _, d := range sums {
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b departed) int {
		if c := a.At.Compare(b.At); c != 0 {
			return c
		}
		return resource.Key{Kind: a.Kind}.Compare(resource.Key{Kind: b.Kind})
	})
	return all
}

// recall takes up the losses of an earlier run. Those that a clock which stepped back has put into the future are of now.
func (w *window) recall(all []departed, now time.Time) {
	for _, d := range all {
		if d.At.After(now) {
			d.At = now
		}
		w.earlier = append(w.earlier, d)
		w.sum.add(d.Kind, d.Objects, d.Endpoints)
	}
}
