package adsc_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"

	"tributary/adsc"
)

// holder is a caller that keeps the rules of Response: it has what it took, and drops what has gone.
type holder struct {
	mu     sync.Mutex
	have   map[string]string
	set    map[string]bool
	reject func(r *adsc.Response) error // nil takes all
	log    []string
}

func (h *holder) handle(_ context.Context, r *adsc.Response) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.have == nil {
		h.have = map[string]string{}
	}
	h.log = append(h.log, summary(r))
	var err error
	if h.reject != nil {
		err = h.reject(r)
	}
	bad := map[string]bool{}
	if some, ok := errors.AsType[*adsc.RejectedError](err); ok {
		for _, n := range some.Names {
			bad[n] = true
		}
	} else if err != nil {
		return err
	}
	if r.Complete && h.set == nil {
		h.set = map[string]bool{}
	}
	for _, res := range r.Resources {
		if !bad[res.Name] {
			h.have[res.Name] = res.Version
		}
		if r.Complete {
			h.set[res.Name] = true // of what was rejected the last good one stays
		}
	}
	for _, n := range r.Removed {
		delete(h.have, n)
	}
	if r.Complete && !r.More {
		maps.DeleteFunc(h.have, func(n, _ string) bool { return !h.set[n] })
		h.set = nil
	}
	return err
}

// begin is a hook of each stream: what the one before began is not gone on with.
func (h *holder) begin(string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.set = nil
}

func (h *holder) has() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.have))
}

// honest answers the first request by the rules: what differs from the versions brought along, and what has gone.
func honest(t *testing.T, s deltaStream, nonce string, content map[string]string) (*deltaRequest, error) {
	r, err := s.Recv()
	if err != nil {
		return nil, err
	}
	var items []string
	for _, n := range slices.Sorted(maps.Keys(content)) {
		if v, ok := r.GetInitialResourceVersions()[n]; !ok || v != content[n] {
			items = append(items, n+"@"+content[n])
		}
	}
	for n := range r.GetInitialResourceVersions() {
		if _, there := content[n]; !there {
			items = append(items, "-"+n)
		}
	}
	return r, s.Send(deltaResponse(t, nonce, "v", items...))
}
