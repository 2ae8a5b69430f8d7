package history

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"tributary/internal/disk"
)

// Health lists the defects of a history. It is empty without any.
type Health struct {
	Error   string    `json:"error,omitempty"` // of the last write
	Lost    int       `json:"lost,omitempty"`  // changes that could not be written since the start
	Damaged []Damaged `json:"damaged,omitempty"`
}

// Well reports whether there are no defects.
func (h *Health) Well() bool { return h.Error == "" && h.Lost == 0 && len(h.Damaged) == 0 }

// Damaged is a file that was found damaged or missing since the start.
type Damaged struct {
	File string    `json:"file"`
	Why  string    `json:"why"`
	Seen time.Time `json:"seen"`
}

type health struct {
	mu      sync.Mutex
	current Health // guarded by mu
}

func (h *health) set(change func(*Health)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change(&h.current)
}

// damaged reports a damaged or missing file once, and returns the time of its first report.
func (h *History) damaged(path string, err error) (seen time.Time) {
	reason, first := err.Error(), false
	if errors.Is(err, fs.ErrNotExist) {
		reason = "it is gone"
	}
	h.health.set(func(health *Health) {
		if i := slices.IndexFunc(health.Damaged, func(file Damaged) bool { return file.File == path }); i >= 0 {
			seen = health.Damaged[i].Seen
			return
		}
		seen, first = time.Now().UTC(), true
		health.Damaged = append(health.Damaged, Damaged{path, reason, seen})
	})
	if first {
		h.spoiled.Inc()
		h.log.Error("a file of the history is damaged: its records are lost", "file", path, "why", reason)
	}
	return seen
}

// Health checks the files, and returns the defects of the history.
func (h *History) Health() (result Health) {
	for _, segment := range h.readable.Load().segments {
		path := h.files.path(segment.number, segmentSuffix)
		info, err := os.Stat(path)
		if err == nil && info.Size() < segment.size {
			err = disk.ErrShort
		}
		if err != nil && int64(segment.number) >= h.files.oldest.Load() {
			h.damaged(path, err)
		}
	}
	h.health.set(func(health *Health) {
		result = *health
		result.Damaged = slices.Clone(health.Damaged)
	})
	return result
}
