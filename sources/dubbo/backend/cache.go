package backend

import (
	"context"
	"errors"
	"slices"
	"time"
)

// The mapping is read again after growing pauses of up to an hour, at least mappingShare times as long as a read takes:
// that takes a request for each interface. The first request for a revision shortens the pause.
const (
	firstPause   = 10 * time.Second
	lastPause    = time.Hour
	mappingShare = 20
)

// MappingCache is the mapping of a registry, as last read. It is safe for concurrent use.
type MappingCache struct {
	read func(context.Context) (map[string][]string, error)
	turn chan struct{} // taken by the caller that reads

	// The caller that reads owns these fields.
	interfaces map[string][]string // by application, as the last successful read had them
	failure    error               // of the last read, or nil
	due        time.Time           // the time of the next read
	pause      time.Duration       // between the next read and the one after it
}

// NewMappingCache returns a cache of a registry's mapping.
func NewMappingCache(r Registry) *MappingCache {
	return &MappingCache{read: r.Mapped, turn: make(chan struct{}, 1)}
}

// Interfaces returns the interfaces mapped to an application, and the error of the last read. first marks the first
// request for a revision. Concurrent calls wait for one read.
func (m *MappingCache) Interfaces(ctx context.Context, application string, first bool) ([]string, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case m.turn <- struct{}{}:
		defer func() { <-m.turn }()
	}
	begin := time.Now()
	if first {
		m.pause = firstPause
		if soon := begin.Add(firstPause); soon.Before(m.due) {
			m.due = soon
		}
	}
	if !begin.Before(m.due) {
		interfaces, err := m.read(ctx)
		if errors.Is(err, ErrAbsent) {
			err = nil
		}
		if m.failure = err; err == nil {
			m.interfaces = interfaces
		}
		m.due = time.Now().Add(max(m.pause, firstPause, mappingShare*time.Since(begin)))
		m.pause = min(2*max(m.pause, firstPause), lastPause)
	}
	return slices.Clone(m.interfaces[application]), m.failure
}
