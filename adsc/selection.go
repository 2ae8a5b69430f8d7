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

// selectionOf returns the selection of a list of names. An empty list selects all resources.
func selectionOf(names []string) selection {
	selected := selection{wildcard: len(names) == 0 || slices.Contains(names, star)}
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	selected.names = slices.DeleteFunc(names, func(name string) bool { return name == star })
	return selected
}

func (s selection) isEmpty() bool { return !s.wildcard && len(s.names) == 0 }

func (s selection) equal(o selection) bool {
	return s.wildcard == o.wildcard && slices.Equal(s.names, o.names)
}

func (s selection) hasName(name string) bool {
	_, exists := slices.BinarySearch(s.names, name)
	return exists
}

// covers returns a function that reports whether a resource may be selected. A selection with a name such as
// "xdstp://a/t/*" may select any resource.
func (s selection) covers() func(name string) bool {
	if s.wildcard || slices.ContainsFunc(s.names, func(name string) bool { return strings.Contains(name, star) }) {
		return func(string) bool { return true }
	}
	return s.hasName
}

// intersect returns the resources in both selections.
func (s selection) intersect(limit selection) selection {
	common := selection{wildcard: s.wildcard && limit.wildcard}
	for _, name := range s.names {
		if limit.wildcard || limit.hasName(name) {
			common.names = append(common.names, name)
		}
	}
	if s.wildcard {
		common.names = append(common.names, limit.names...)
		slices.Sort(common.names)
		common.names = slices.Compact(common.names)
	}
	return common
}

// without returns the names that are in s and not in removed, including the star.
func (s selection) without(removed selection) []string {
	var names []string
	if s.wildcard && !removed.wildcard {
		names = append(names, star)
	}
	for _, name := range s.names {
		if !removed.hasName(name) {
			names = append(names, name)
		}
	}
	return names
}

// list returns the names of the selection, including the star.
func (s selection) list() []string { return s.without(selection{}) }
