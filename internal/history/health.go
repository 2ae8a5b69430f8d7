package history

import (
	"errors"
	"io/fs"
	"os"
	"slices"
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

// Damaged is a file that was found damaged, unreadable or missing since the start.
type Damaged struct {
	File string    `json:"file"`
	Why  string    `json:"why"`
	Seen time.Time `json:"seen"`
}

// lose counts lost changes.
func (h *History) lose(count int) {
	h.lost.Add(float64(count))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.health.Lost += count
}

// setError sets the error of the last write, and logs the first one and the end of the errors.
func (h *History) setError(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	failed := h.health.Error != ""
	h.health.Error = ""
	if err != nil {
		h.health.Error = err.Error()
	}
	switch {
	case err != nil && !failed:
		h.log.Error("changes cannot be written to the history", "err", err)
	case err == nil && failed:
		h.log.Info("changes are written to the history again")
	}
}

// damaged reports a damaged, unreadable or missing segment once, and returns the time of its first report.
func (h *History) damaged(number int, err error) (seen time.Time) {
	path, reason := h.files.path(number, segmentSuffix), err.Error()
	if errors.Is(err, fs.ErrNotExist) {
		reason = "it is gone"
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, file := range h.health.Damaged {
		if file.File == path {
			return file.Seen
		}
	}
	seen = time.Now().UTC()
	h.health.Damaged = append(h.health.Damaged, Damaged{path, reason, seen})
	h.spoiled.Inc()
	h.log.Error("a file of the history is damaged or cannot be read: its records are missing", "file", path, "why", reason)
	return seen
}

// Health checks the files, and returns the defects of the history.
func (h *History) Health() Health {
	for _, segment := range h.readable.Load().segments {
		info, err := os.Stat(h.files.path(segment.number, segmentSuffix))
		if err == nil && info.Size() < segment.size {
			err = disk.ErrShort
		}
		if err != nil && int64(segment.number) >= h.files.oldest.Load() {
			h.damaged(segment.number, err)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	result := h.health
	result.Damaged = slices.Clone(result.Damaged)
	return result
}
