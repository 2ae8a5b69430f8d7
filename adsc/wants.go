package adsc

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"
)

// star is the name by which all resources of a type are asked for.
const star = "*"

// wants is what of a type is asked for. The zero value is nothing. It is not modified.
type wants struct {
	all   bool
	names []string // sorted, each once, without the star
}

// wantsOf returns what names ask for, of which none means all.
func wantsOf(names []string) wants {
	if len(names) == 0 {
		return wants{all: true}
	}
	return wantsNames(names)
}

// wantsNames is wantsOf, but that no names mean nothing.
func wantsNames(names []string) wants {
	names = slices.Clone(names)
	slices.Sort(names)
	names = slices.Compact(names)
	w := wants{all: slices.Contains(names, star)}
	w.names = slices.DeleteFunc(names, func(name string) bool { return name == star })
	return w
}

func (w wants) nothing() bool { return !w.all && len(w.names) == 0 }

func (w wants) equal(o wants) bool { return w.all == o.all && slices.Equal(w.names, o.names) }

func (w wants) has(name string) bool {
	_, found := slices.BinarySearch(w.names, name)
	return found
}

// covers returns a function that reports whether a resource is among what is wanted. A name like "xdstp://a/t/*" stands
// for names that cannot be told from here.
func (w wants) covers() func(name string) bool {
	if w.all || slices.ContainsFunc(w.names, func(name string) bool { return strings.Contains(name, star) }) {
		return func(string) bool { return true }
	}
	return w.has
}

// and returns what both want.
func (w wants) and(o wants) wants {
	both := wants{all: w.all && o.all}
	for _, name := range w.names {
		if o.all || o.has(name) {
			both.names = append(both.names, name)
		}
	}
	if w.all {
		both.names = append(both.names, o.names...)
		slices.Sort(both.names)
		both.names = slices.Compact(both.names)
	}
	return both
}

// without returns the names, the star included, by which w is asked for and o is not.
func (w wants) without(o wants) []string {
	var left []string
	if w.all && !o.all {
		left = append(left, star)
	}
	for _, name := range w.names {
		if !o.has(name) {
			left = append(left, name)
		}
	}
	return left
}

// list returns the names by which w is asked for.
func (w wants) list() []string { return w.without(wants{}) }

// namer returns what tells the name of a resource, or nothing if that is not known: delta has it beside the resource, and
// for state of the world it is as the caller says, or as it is in Envoy's types.
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

// firstField returns the first field of an encoded message. That is where all of Envoy's types have their name.
func firstField(a *anypb.Any) string {
	b := a.GetValue()
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return ""
		}
		b = b[n:]
		if num == 1 && typ == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(b) // it is empty if it is cut
			return string(v)
		}
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return ""
		}
		b = b[n:]
	}
	return ""
}
