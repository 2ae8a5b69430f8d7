package envoy

import (
	"maps"
	"slices"
	"sync"

	"tributary/resource"
	"tributary/server/envoy/model"
)

// findingIndex holds the findings of a scope, by source (a host, routes or a listener) and by object. It is safe for
// concurrent use.
type findingIndex struct {
	mu       sync.Mutex
	bySource map[string]model.Findings
	byObject map[resource.Key]map[model.Finding]int // with the number of sources
}

// set replaces the findings of a source.
func (n *findingIndex) set(source string, list model.Findings) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, finding := range n.bySource[source] {
		counts := n.byObject[finding.Object]
		if counts[finding]--; counts[finding] == 0 {
			delete(counts, finding)
		}
		if len(counts) == 0 {
			delete(n.byObject, finding.Object)
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
	for _, finding := range list {
		if n.byObject[finding.Object] == nil {
			n.byObject[finding.Object] = make(map[model.Finding]int)
		}
		n.byObject[finding.Object][finding]++
	}
}

// withReason returns the findings of an object that have a reason.
func (n *findingIndex) withReason(key resource.Key) []model.Finding {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.DeleteFunc(slices.Collect(maps.Keys(n.byObject[key])),
		func(finding model.Finding) bool { return finding.Why == "" })
}

// applied returns the objects with patches or plugins that changed the resource of a source.
func (n *findingIndex) applied(source string) (keys []resource.Key) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, finding := range n.bySource[source] {
		if finding.Why == "" {
			keys = append(keys, finding.Object)
		}
	}
	return keys
}

// contains reports whether a place has a finding.
func (n *findingIndex) contains(place model.Place) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for finding := range n.byObject[place.Object] {
		if finding.Place == place {
			return true
		}
	}
	return false
}

// addObjects adds the objects that have findings with a reason.
func (n *findingIndex) addObjects(objects map[resource.Key]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for key, findings := range n.byObject {
		for finding := range findings {
			objects[key] = objects[key] || finding.Why != ""
		}
	}
}
