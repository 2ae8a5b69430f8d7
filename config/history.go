package config

import "tributary/internal/history"

// History says how much is remembered of changes.
type History struct {
	// What the history may take on disk; at least 1048576. Default: 67108864, which is about a week of a change each five seconds; -1 for no
	// history.
	Bytes int64 `json:"bytes,omitempty"`
}

func (d *decoder) checkHistory(h *History) {
	if h.Bytes == 0 {
		h.Bytes = history.DefaultSize
	}
	if h.Bytes != -1 && h.Bytes < history.LeastSize {
		d.problem("history.bytes", "want at least %d, or -1 for no history, got %d", history.LeastSize, h.Bytes)
	}
}
