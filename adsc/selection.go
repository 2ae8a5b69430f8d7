package adsc

import (
	"slices"
	"strings"
)

// star is the name that selects all resources of a type.
const star = "*"

// selection is a set of resources of a type. The zero value is empty. It is immutable.
type selection struct {
	wildcard bool
	names    []string // sorted, each once, without the star
}

// selectionOf returns the selection of names. No names mean all.
func selectionOf(names []string) selection {
	selected := selection{wildcard: len(names) == 0 || slices.Contains(names, star)}
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	selected.names = slices.DeleteFunc(names, func(name string) bool { return name == star })
	return selected
}

func (w selection) isEmpty() bool { return !w.wildcard && len(w.names) == 0 }

func (w selection) equal(o selection) bool {
	return w.wildcard == o.wildcard && slices.Equal(w.names, o.names)
}

func (w selection) hasName(name string) bool {
	_, exists := slices.BinarySearch(w.names, name)
	return exists
}

// covers returns a function that reports whether a resource is selected. A name like "xdstp://a/t/*" may stand for any
// name.
func (w selection) covers() func(name string) bool {
	if w.wildcard || slices.ContainsFunc(w.names, func(name string) bool { return strings.Contains(name, star) }) {
		return func(string) bool { return true }
	}
	return w.hasName
}

// intersect returns the resources in both selections.
func (w selection) intersect(limit selection) selection {
	common := selection{wildcard: w.wildcard && limit.wildcard}
	for _, name := range w.names {
		if limit.wildcard || limit.hasName(name) {
			common.names = append(common.names, name)
		}
	}
	if w.wildcard {
		common.names = append(common.names, limit.names...)
		slices.Sort(common.names)
		common.names = slices.Compact(common.names)
	}
	return common
}

// without returns the names of w, including the star, that removed lacks.
func (w selection) without(removed selection) []string {
	var names []string
	if w.wildcard && !removed.wildcard {
		names = append(names, star)
	}
	for _, name := range w.names {
		if !removed.hasName(name) {
			names = append(names, name)
		}
	}
	return names
}

// list returns the names of w, including the star.
func (w selection) list() []string { return w.without(selection{}) }
