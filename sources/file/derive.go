package file

import (
	"strings"

	"tributary/internal/words"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/derive"
)

// DerivedKinds are the kinds of derive, as resource.Options name them.
var DerivedKinds = strings.Join(words.Each(derive.Kinds, func(k derive.Kind) string { return k.Kind + "." + k.Group }), " ")

// DecodeDeriving returns the objects of a text, and those that derive from them.
func DecodeDeriving(place string, text []byte, o resource.Options, d derive.Options) []sources.Content {
	o.Keep = DerivedKinds
	c := sources.Decode(place, place, text, o)
	all := derive.NewSet(d)
	all.Replace(place, &c)
	derived, _ := all.Content(func() string { return "" })
	return []sources.Content{c, derived}
}

// unknownFile returns a file of which it is not known what is in it, or "".
func (r *run) unknownFile() (unknown string) {
	r.files.Scan(func(path string, _ known) bool {
		if !r.derived.Has(path) {
			unknown = r.loader.in(r.root, path)
		}
		return unknown == ""
	})
	return unknown
}
