package adsc

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"
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
	if len(names) == 0 {
		return selection{wildcard: true}
	}
	return selectNames(names)
}

// selectNames returns the selection of names. No names select no resource.
func selectNames(names []string) selection {
	names = slices.Clone(names)
	slices.Sort(names)
	names = slices.Compact(names)
	w := selection{wildcard: slices.Contains(names, star)}
	w.names = slices.DeleteFunc(names, func(name string) bool { return name == star })
	return w
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
func (w selection) intersect(o selection) selection {
	common := selection{wildcard: w.wildcard && o.wildcard}
	for _, name := range w.names {
		if o.wildcard || o.hasName(name) {
			common.names = append(common.names, name)
		}
	}
	if w.wildcard {
		common.names = append(common.names, o.names...)
		slices.Sort(common.names)
		common.names = slices.Compact(common.names)
	}
	return common
}

// without returns the names of w, including the star, that o lacks.
func (w selection) without(o selection) []string {
	var names []string
	if w.wildcard && !o.wildcard {
		names = append(names, star)
	}
	for _, name := range w.names {
		if !o.hasName(name) {
			names = append(names, name)
		}
	}
	return names
}

// list returns the names of w, including the star.
func (w selection) list() []string { return w.without(selection{}) }

// namer returns the function that returns the name of a resource; empty without one. Delta has the name beside the
// resource. In state of the world, the caller's function or the place of Envoy's types finds it.
func namer(s Subscription) func(Resource) string {
	inside := s.NameOf
	if inside == nil && strings.HasPrefix(s.TypeURL, "type.googleapis.com/envoy.") {
		inside = firstField
	}
	return func(r Resource) string {
		if r.Name != "" || inside == nil {
			return r.Name
		}
		return inside(r.Body)
	}
}

// firstField returns the first field of an encoded message, which is the name in all of Envoy's types.
func firstField(a *anypb.Any) string {
	b := a.GetValue()
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return ""
		}
		b = b[n:]
		if num == 1 && typ == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(b) // empty if it is cut
			return string(v)
		}
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return ""
		}
		b = b[n:]
	}
	return ""
}
