package guard

import (
	"time"

	"github.com/tidwall/btree"

	"tributary/memstore"
	"tributary/resource"
)

// loss is what the source says of a key that is to lose something.
type loss struct {
	key       resource.Key
	desired   *resource.Resource // nil if the object is to go
	endpoints int                // that it loses
}

// lossesOf returns those of puts and deletes that would lose something of what was before, each key once.
func lossesOf(puts []*resource.Resource, deletes []resource.Key, before memstore.Snapshot) []loss {
	var losses []loss
	last := make(map[resource.Key]*resource.Resource) // of several puts the last counts, and puts come after deletes
	if len(deletes) > 0 || len(puts) > 1 {
		for _, r := range puts {
			last[r.Key()] = r
		}
	}
	for _, r := range puts {
		if winner := last[r.Key()]; winner != nil && winner != r {
			continue
		}
		if lost := endpoints(before.Get(r.Key())) - endpoints(r); lost > 0 {
			losses = append(losses, loss{r.Key(), r, lost})
		}
	}
	for _, key := range deletes {
		if old := before.Get(key); old != nil && last[key] == nil {
			losses = append(losses, loss{key, nil, endpoints(old)})
			last[key] = old // once
		}
	}
	return losses
}

// hold is what is kept back.
type hold struct {
	since     time.Time
	why       string
	resumed   bool                // the source has not been read since the restart
	held      *btree.BTreeG[loss] // by key; every key is in the table
	objects   int                 // to go
	endpoints int
}

// add holds l, in the place of what was held of its key.
func (h *hold) add(l loss) {
	if h.held == nil {
		h.held = btree.NewBTreeGOptions(func(a, b loss) bool { return a.key.Compare(b.key) < 0 }, btree.Options{NoLocks: true})
	}
	old, replaced := h.held.Set(l)
	if replaced {
		h.count(old, -1)
	}
	h.count(l, 1)
}

// cancel forgets key: it has come back.
func (h *hold) cancel(key resource.Key) {
	if h.size() == 0 {
		return
	}
	if old, ok := h.held.Delete(loss{key: key}); ok {
		h.count(old, -1)
	}
}

func (h *hold) count(l loss, sign int) {
	h.endpoints += sign * l.endpoints
	if l.desired == nil {
		h.objects += sign
	}
}

// size returns the number of keys held.
func (h *hold) size() int {
	if h == nil || h.held == nil {
		return 0
	}
	return h.held.Len()
}

// desired returns what the table must do to be as the source says.
func (h *hold) desired() (puts []*resource.Resource, deletes []resource.Key) {
	for _, l := range h.first(h.size()) {
		if l.desired == nil {
			deletes = append(deletes, l.key)
		} else {
			puts = append(puts, l.desired)
		}
	}
	return puts, deletes
}

// first returns the first n of what is held, by key.
func (h *hold) first(n int) []loss {
	n = min(n, h.size())
	if n == 0 {
		return nil
	}
	all := make([]loss, 0, n)
	h.held.Scan(func(l loss) bool {
		all = append(all, l)
		return len(all) < n
	})
	return all
}
