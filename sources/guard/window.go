package guard

import (
	"slices"
	"time"

	"tributary/resource"
)

// window has the losses of the last while that were let through and have not come back. The zero value is empty.
type window struct {
	lost  map[resource.Key]lost
	queue []departure // oldest first; those that do not fit to lost are obsolete

	objects, endpoints int // sums over lost
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
	w.count(next, 1)
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
	w.count(w.lost[key], -1)
	delete(w.lost, key)
}

func (w *window) count(l lost, sign int) {
	w.endpoints += sign * (l.had - l.n)
	if l.gone {
		w.objects += sign
	}
}
