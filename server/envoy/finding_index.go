package envoy

import (
	"maps"
	"slices"
	"sync"

	"tributary/resource"
	"tributary/server/envoy/model"
)

// findingIndex has the findings of a scope, by source (a host, routes or a listener) and by object. It is safe for concurrent use.
type findingIndex struct {
	mu       sync.Mutex
	bySource map[string]model.Findings
	byObject map[resource.Key]map[model.Finding]int // and in how many sources
}

// set replaces the findings of a source.
func (n *findingIndex) set(source string, list model.Findings) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, f := range n.bySource[source] {
		of := n.byObject[f.Of]
		if of[f]--; of[f] == 0 {
			delete(of, f)
		}
		if len(of) == 0 {
			delete(n.byObject, f.Of)
		}
	}
	delete(n.bySource, source)
	if len(list) == 0 {
		return
	}
	if n.bySource == nil {
		n.bySource, n.byObject = make(map[string]model.Findings), make(map[resource.Key]map[model.Finding]int)
	}
	n.bySource[source] = list
	for _, f := range list {
		if n.byObject[f.Of] == nil {
			n.byObject[f.Of] = make(map[model.Finding]int)
		}
		n.byObject[f.Of][f]++
	}
}

// of returns the findings of an object that have a reason.
func (n *findingIndex) of(key resource.Key) []model.Finding {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.DeleteFunc(slices.Collect(maps.Keys(n.byObject[key])), func(f model.Finding) bool { return f.Why == "" })
}

// applied returns the objects whose patches or plugins changed the resource of a source.
func (n *findingIndex) applied(source string) (keys []resource.Key) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, f := range n.bySource[source] {
		if f.Why == "" {
			keys = append(keys, f.Of)
		}
	}
	return keys
}

// has says whether there is a finding at a place.
func (n *findingIndex) has(at model.Place) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for f := range n.byObject[at.Of] {
		if f.Place == at {
			return true
		}
	}
	return false
}

// objects adds the objects that have findings with a reason.
func (n *findingIndex) objects(all map[resource.Key]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for key, found := range n.byObject {
		for f := range found {
			all[key] = all[key] || f.Why != ""
		}
	}
}
