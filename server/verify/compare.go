// Package verify compares what is served with what an istiod really stored, or an Envoy really has. An acknowledgement does not tell:
// istiod acknowledges what it then throws away, and what a proxy in between holds back nobody has acknowledged.
package verify

import (
	"fmt"
	"slices"
	"strings"

	"tributary/resource"
)

// Class is in which way an object is not as it is served.
type Class string

// The classes.
const (
	Missing   Class = "missing"   // it is served, and the peer does not have it
	Stale     Class = "stale"     // the peer has what was served before
	Different Class = "different" // the peer has something else
	Rejected  Class = "rejected"  // an Envoy has rejected it
	Warming   Class = "warming"   // an Envoy has it, and waits for what it refers to before it is in force
	Extra     Class = "extra"     // the peer has it, and it is not served, nor was it
)

// Classes are all of them.
func Classes() []Class { return []Class{Missing, Stale, Different, Rejected, Warming, Extra} }

// Finding is an object that an istiod, or a thing that an Envoy, does not have as it is served.
type Finding struct {
	Class     Class         `json:"class"`
	Kind      resource.Kind `json:"kind"`
	Namespace string        `json:"namespace,omitempty"`
	Name      string        `json:"name"`
	Reason    string        `json:"reason"`
	Origin    string        `json:"origin,omitempty"` // of what is served, where that is known
}

// Key is that of the object.
func (f *Finding) Key() resource.Key {
	return resource.Key{Kind: f.Kind, Namespace: f.Namespace, Name: f.Name}
}

// Stored is an object as an istiod has it.
type Stored struct {
	Key     resource.Key
	Version string             // under which it was sent
	Object  *resource.Resource // nil if it cannot be read
	Err     error              // why
}

// Served is what is served, and to whom.
type Served struct {
	Objects []*resource.Resource
	// Asked says whether anybody asks for a kind; nil if that is not known.
	Asked func(resource.Kind) bool
}

// Compare returns what is not in an istiod as it is served, in order of key. Both are taken to be of one moment.
func Compare(served Served, stored []Stored) []Finding {
	theirs := make(map[resource.Key]*Stored, len(stored))
	kinds := make(map[resource.Kind]bool)
	for i := range stored {
		theirs[stored[i].Key] = &stored[i]
		kinds[stored[i].Key.Kind] = true
	}
	var all []Finding
	add := func(class Class, key resource.Key, origin, reason string) {
		all = append(all, Finding{class, key.Kind, key.Namespace, key.Name, reason, origin})
	}
	for _, ours := range served.Objects {
		key := ours.Key()
		if schema, ok := resource.SchemaOf(key.Kind); !ok || schema.Bare {
			continue // mesh configuration is no object in istiod
		}
		their := theirs[key]
		delete(theirs, key)
		if their == nil {
			if served.Asked == nil || served.Asked(key.Kind) {
				add(Missing, key, ours.Origin().String(), whyMissing(ours, kinds))
			}
			continue
		}
		if class, reason := judge(ours, their); class != "" {
			add(class, key, ours.Origin().String(), reason)
		}
	}
	for key, their := range theirs {
		if their.ours() {
			add(Stale, key, "", "it is no longer served, and istiod has not dropped it")
		} else {
			add(Extra, key, "", "another config source of this istiod has it")
		}
	}
	slices.SortFunc(all, func(a, b Finding) int { return a.Key().Compare(b.Key()) })
	return all
}

// ours says whether an object was sent by a tributary: those make versions of the content.
func (s *Stored) ours() bool {
	return s.Object != nil && content(s.Version) == content(s.Object.Version())
}

// content is the part of a version that the content decides. What follows is the time of creation, by which nothing but the order of
// objects changes.
func content(version string) string {
	hash, _, _ := strings.Cut(version, ".")
	return hash
}

// judge says in which way what istiod has is not what is served; nothing if it is.
func judge(ours *resource.Resource, their *Stored) (Class, string) {
	switch {
	case their.Err != nil:
		return Different, "what istiod has cannot be read: " + their.Err.Error()
	case content(ours.Version()) == content(their.Object.Version()):
		return "", ""
	case content(ours.Version()) == content(their.Version):
		return Different, "istiod shows other content than it was sent"
	case their.ours():
		return Stale, "istiod has the earlier version " + their.Version
	}
	return Different, "another config source of this istiod has it, too"
}

// whyMissing says why istiod may not have an object, given the kinds of which it has any.
func whyMissing(r *resource.Resource, kinds map[resource.Kind]bool) string {
	if revision := r.Labels()[revisionLabel]; revision != "" && revision != "default" {
		return fmt.Sprintf("it is labelled for the revision %s", revision)
	}
	if _, err := resource.Validate(r); err != nil {
		return "istiod's validation refuses it: " + err.Error()
	}
	if !kinds[r.Key().Kind] {
		return "istiod has nothing of this kind: it may not ask for it, or not have been answered yet"
	}
	return "it may be on its way; if it stays so, istiod or what is between has dropped it"
}

// revisionLabel names the revision of Istio that is to have an object.
const revisionLabel = "istio.io/rev"
