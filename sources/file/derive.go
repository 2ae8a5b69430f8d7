package file

import (
	"strings"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/derive"
)

// keptKinds are the kinds of other APIs that are kept of files, as resource.Options name them.
var keptKinds = func() string {
	var all []string
	for _, k := range derive.Kinds {
		if _, ours := resource.SchemaByAPIVersion(k.Group+"/"+k.Versions[0], k.Kind); !ours {
			all = append(all, k.Kind+"."+k.Group)
		}
	}
	return strings.Join(all, " ")
}()

// DecodeDeriving makes of a text what a file of it has, and what is derived of that.
func DecodeDeriving(place string, text []byte, o resource.Options, d derive.Options) []sources.Content {
	o.Keep = keptKinds
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
