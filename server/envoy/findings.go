package envoy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"

	"tributary/resource"
)

// place is an object, or a part of one.
type place struct {
	of    resource.Key
	field string // its path; empty for the whole
}

// in returns a part of the place.
func (p place) in(format string, args ...any) place {
	field := fmt.Sprintf(format, args...)
	if p.field != "" {
		field = p.field + "." + field
	}
	return place{p.of, field}
}

// finding is something that an object says and that has no effect on clients, or not the one that was meant, and what happens instead.
type finding struct {
	place
	why string
}

func (f finding) String() string {
	if f.field == "" {
		return "it has no effect on Envoys: " + f.why
	}
	return f.field + " has no effect on Envoys: " + f.why
}

func (f finding) compare(o finding) int {
	return cmp.Or(f.of.Compare(o.of), cmp.Compare(f.field, o.field), cmp.Compare(f.why, o.why))
}

// findings are what was found while something was translated.
type findings []finding

func (f *findings) note(at place, why string, args ...any) {
	*f = append(*f, finding{at, fmt.Sprintf(why, args...)})
}

// sorted returns each once, in order.
func (f findings) sorted() findings {
	slices.SortFunc(f, finding.compare)
	return slices.Compact(f)
}

// notebook has what was found for the clients of a scope, by what it was found in. It is safe for concurrent use.
type notebook struct {
	mu       sync.Mutex
	bySource map[string]findings
	byObject map[resource.Key]map[finding]int // and in how many sources
}

// set makes list what was found in a source.
func (n *notebook) set(source string, list findings) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, f := range n.bySource[source] {
		of := n.byObject[f.of]
		if of[f]--; of[f] == 0 {
			delete(of, f)
		}
		if len(of) == 0 {
			delete(n.byObject, f.of)
		}
	}
	delete(n.bySource, source)
	if len(list) == 0 {
		return
	}
	if n.bySource == nil {
		n.bySource, n.byObject = make(map[string]findings), make(map[resource.Key]map[finding]int)
	}
	n.bySource[source] = list
	for _, f := range list {
		if n.byObject[f.of] == nil {
			n.byObject[f.of] = make(map[finding]int)
		}
		n.byObject[f.of][f]++
	}
}

// of returns what was found in an object.
func (n *notebook) of(key resource.Key) []finding {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Keys(n.byObject[key]))
}

// objects adds the objects in which something was found.
func (n *notebook) objects(all map[resource.Key]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for key := range n.byObject {
		all[key] = true
	}
}
