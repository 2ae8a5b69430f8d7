package file

import (
	"strings"

	"tributary/internal/words"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/derive"
)

// DerivedKinds are the kinds of derive, as resource.Options name them.
var DerivedKinds = strings.Join(words.Each(derive.Kinds, func(k derive.Kind) string {
	return k.Kind + "." + k.Group
}), " ")

// DecodeDeriving returns the objects of a text, and those that derive from them.
func DecodeDeriving(place string, text []byte, o resource.Options, options derive.Options) []sources.Content {
	o.Keep = DerivedKinds
	content := sources.Decode(place, place, text, o)
	set := derive.NewSet(options)
	set.Replace(place, &content)
	derived, _ := set.Content(func() string { return "" })
	return []sources.Content{content, derived}
}

// unknownFile returns a file with unknown objects, or "".
func (r *run) unknownFile() (unknown string) {
	r.files.Scan(func(path string, _ fileState) bool {
		if !r.derived.Has(path) {
			unknown = r.loader.displayName(r.root, path)
		}
		return unknown == ""
	})
	return unknown
}
