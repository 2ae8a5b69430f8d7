package envoy

import (
	"maps"
	"slices"
	"sync"

	"tributary/resource"
	"tributary/server/envoy/model"
)

// findingIndex has what was found for the clients of a scope, by what it was found in. It is safe for concurrent use.
type findingIndex struct {
	mu       sync.Mutex
	bySource map[string]model.Findings
	byObject map[resource.Key]map[model.Finding]int // and in how many sources
}

// set makes list what was found in a source.
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

// of returns what was found in an object.
func (n *findingIndex) of(key resource.Key) []model.Finding {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Keys(n.byObject[key]))
}

// objects adds the objects in which something was found.
func (n *findingIndex) objects(all map[resource.Key]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for key := range n.byObject {
		all[key] = true
	}
}
