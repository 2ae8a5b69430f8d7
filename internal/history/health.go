package history

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tributary/internal/disk"
)

// Health is what is wrong with a history; nothing if it is empty.
type Health struct {
	Error   string    `json:"error,omitempty"` // why changes cannot be written at present
	Lost    int       `json:"lost,omitempty"`  // changes that could not be written since the start
	Damaged []Damaged `json:"damaged,omitempty"`
}

// Well reports whether nothing is.
func (h *Health) Well() bool { return h.Error == "" && h.Lost == 0 && len(h.Damaged) == 0 }

// Damaged is a file that was found damaged or gone since the start.
type Damaged struct {
	File string    `json:"file"`
	Why  string    `json:"why"`
	Seen time.Time `json:"seen"`
}

// maxDamaged caps how many damaged files are listed by name.
const maxDamaged = 100

// health is what is known of it. Everyone may use it.
type health struct {
	renew atomic.Bool // a file was found damaged: what comes next is to go into another one

	mu  sync.Mutex
	now Health // guarded by mu
}

func (h *health) set(change func(now *Health)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change(&h.now)
}

// lose counts n changes that could not be written. What is written next goes behind another base, and the present one is emptied, which
// needs no room: the next process must not take for changes what it finds different from it.
func (h *History) lose(n int, err error) {
	h.lost.Add(float64(n))
	if h.gap.since.IsZero() {
		h.gap = gap{time.Now().UTC(), h.last}
	}
	h.health.renew.Store(true)
	_ = os.Truncate(h.files.path(h.files.base.number, baseSuffix), 0) // if there is one
	h.files.base.size = 0
	h.health.set(func(now *Health) { now.Lost += n })
	h.note(err)
}

// damaged says once of a file that it is damaged or gone, and returns since when that is known. What is written next goes into another one.
func (h *History) damaged(path string, err error) (seen time.Time) {
	why, first := err.Error(), false
	if errors.Is(err, fs.ErrNotExist) {
		why = "it is gone"
	}
	h.health.set(func(now *Health) {
		if i := slices.IndexFunc(now.Damaged, func(d Damaged) bool { return d.File == path }); i >= 0 {
			seen = now.Damaged[i].Seen
			return
		}
		if len(now.Damaged) == maxDamaged {
			now.Damaged = slices.Delete(now.Damaged, 0, 1)
		}
		seen, first = time.Now().UTC(), true
		now.Damaged = append(now.Damaged, Damaged{path, why, seen})
	})
	if first {
		h.spoiled.Inc()
		h.health.renew.Store(true)
		h.log.Error("a file of the history is damaged: what was in it is lost", "file", path, "why", why)
	}
	return seen
}

// Health looks after the files, and returns what is wrong.
func (h *History) Health() (all Health) {
	for _, seg := range h.state.Load().segments {
		path := h.files.path(seg.number, segmentSuffix)
		info, err := os.Stat(path)
		if err == nil && info.Size() < seg.size {
			err = disk.ErrShort
		}
		if err != nil && int64(seg.number) >= h.files.oldest.Load() {
			h.damaged(path, err)
		}
	}
	h.health.set(func(now *Health) {
		all = *now
		all.Damaged = slices.Clone(now.Damaged)
	})
	return all
}
