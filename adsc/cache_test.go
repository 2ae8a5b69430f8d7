package adsc_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"tributary/adsc"
)

// cache is a caller that follows the rules of Response: it stores accepted resources, and drops removed ones.
type cache struct {
	mu        sync.Mutex
	resources map[string]string
	set       map[string]bool
	reject    func(r *adsc.Response) error // nil takes all
	log       []string
}

func (h *cache) handle(_ context.Context, response *adsc.Response) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.resources == nil {
		h.resources = map[string]string{}
	}
	h.log = append(h.log, summary(response))
	var err error
	if h.reject != nil {
		err = h.reject(response)
	}
	bad := map[string]bool{}
	if rejection, ok := errors.AsType[*adsc.RejectedError](err); ok {
		for _, n := range rejection.Names {
			bad[n] = true
		}
	} else if err != nil {
		return err
	}
	if response.Complete && h.set == nil {
		h.set = map[string]bool{}
	}
	for _, resource := range response.Resources {
		if !bad[resource.Name] {
			h.resources[resource.Name] = resource.Version
		}
		if response.Complete {
			h.set[resource.Name] = true // a rejected resource keeps its last good version
		}
	}
	for _, n := range response.Removed {
		delete(h.resources, n)
	}
	if response.Complete && !response.More {
		maps.DeleteFunc(h.resources, func(n, _ string) bool { return !h.set[n] })
		h.set = nil
	}
	return err
}

// begin is a hook of each stream: it forgets the set that the previous stream began.
func (h *cache) begin(string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.set = nil
}

func (h *cache) names() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.resources))
}

// initialResponse is the correct response to a first request: resources that differ from its versions, and removals.
func initialResponse(
	t *testing.T, r *discoveryv3.DeltaDiscoveryRequest, nonce string, content map[string]string,
) *discoveryv3.DeltaDiscoveryResponse {
	var items []string
	for _, n := range slices.Sorted(maps.Keys(content)) {
		if v, ok := r.GetInitialResourceVersions()[n]; !ok || v != content[n] {
			items = append(items, n+"@"+content[n])
		}
	}
	for n := range r.GetInitialResourceVersions() {
		if _, exists := content[n]; !exists {
			items = append(items, "-"+n)
		}
	}
	return deltaResponse(t, nonce, "v", items...)
}
