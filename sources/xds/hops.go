package xds

import (
	"context"
	"slices"
	"time"
)

// The pace at which the server is told of other readers: it costs a new stream, on which only versions are compared.
const (
	quietHops    = 2 * time.Second
	intervalHops = 30 * time.Second
)

// hops are the chains of instances that read from a server if this one does.
func (s *Source) hops() []string {
	if s.settings.Instance == "" {
		return nil
	}
	hops := []string{s.settings.Instance}
	if s.settings.Readers != nil {
		for _, chain := range s.settings.Readers.List() {
			hops = append(hops, s.settings.Instance+"/"+chain)
		}
	}
	return hops
}

// announce has a server that is a tributary told who reads from us when that changes, until ctx ends. Without it a loop
// would go unnoticed in which each was connected before its own reader was.
func (s *Source) announce(ctx context.Context, r *run) {
	if s.settings.Readers == nil {
		return
	}
	select {
	case <-ctx.Done():
		return
	case <-r.ours:
	}
	for {
		changed := s.settings.Readers.Changed()
		if said := r.said.Load(); !slices.Equal(*said, s.hops()) {
			if !pause(ctx, s.quietHops) {
				return
			}
			r.client.Reconnect()
			if !pause(ctx, s.intervalHops) {
				return
			}
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// pause waits, and reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
