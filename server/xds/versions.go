package xds

import "strings"

// versions gathers initial_resource_versions, of which a client that resumes may bring along a hundred thousand: their
// text stands in one string, so that there is not an allocation for each name and each version.
type versions struct {
	text strings.Builder
	ends []int // of each name and version in text, in turn
}

// add takes one entry of a message of size bytes.
func (v *versions) add(name, version []byte, size int) {
	if v.ends == nil {
		v.text.Grow(size) // more than enough: all entries are of this message
	}
	v.text.Write(name)
	v.ends = append(v.ends, v.text.Len())
	v.text.Write(version)
	v.ends = append(v.ends, v.text.Len())
}

// byName returns the versions by name, or nil if there are none. All strings share one memory: none of them should
// outlive the others.
func (v *versions) byName() map[string]string {
	if v.ends == nil {
		return nil
	}
	m := make(map[string]string, len(v.ends)/2)
	text, at := v.text.String(), 0
	for i := 0; i < len(v.ends); i += 2 {
		m[text[at:v.ends[i]]] = text[v.ends[i]:v.ends[i+1]]
		at = v.ends[i+1]
	}
	return m
}
