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
func (f *findingIndex) set(source string, list model.Findings) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, finding := range f.bySource[source] {
		counts := f.byObject[finding.Object]
		counts[finding]--
		if counts[finding] == 0 {
			delete(counts, finding)
		}
		if len(counts) == 0 {
			delete(f.byObject, finding.Object)
		}
	}
	delete(f.bySource, source)
	if len(list) == 0 {
		return
	}
	if f.bySource == nil {
		f.bySource = make(map[string]model.Findings)
		f.byObject = make(map[resource.Key]map[model.Finding]int)
	}
	f.bySource[source] = list
	for _, finding := range list {
		if f.byObject[finding.Object] == nil {
			f.byObject[finding.Object] = make(map[model.Finding]int)
		}
		f.byObject[finding.Object][finding]++
	}
}

// noEffect returns the findings of an object that have a reason.
func (f *findingIndex) noEffect(key resource.Key) []model.Finding {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Collect(maps.Keys(f.byObject[key])),
		func(finding model.Finding) bool { return finding.Why == "" })
}

// applied returns the objects with patches or plugins that changed the resource of a source.
func (f *findingIndex) applied(source string) (keys []resource.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, finding := range f.bySource[source] {
		if finding.Why == "" {
			keys = append(keys, finding.Object)
		}
	}
	return keys
}

// contains reports whether a place has a finding.
func (f *findingIndex) contains(place model.Place) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for finding := range f.byObject[place.Object] {
		if finding.Place == place {
			return true
		}
	}
	return false
}

// addAffected adds the objects that have findings with a reason.
func (f *findingIndex) addAffected(objects map[resource.Key]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, findings := range f.byObject {
		for finding := range findings {
			objects[key] = objects[key] || finding.Why != ""
		}
	}
}
