package kube

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/derive"
)

// derivedGroup is the group of what is made of objects of other APIs, all together.
const derivedGroup = "derived"

// derived makes Istio's objects of those of other APIs. run.mu guards it.
type derived struct {
	*run
	set       *derive.Set
	streams   []*stream
	wrong     map[resource.Key]string // why an object is not understood
	inherited bool                    // an earlier run published some, and this one none yet
	dirty     bool
}

func newDerived(r *run) *derived {
	d := &derived{run: r, set: derive.NewSet(*r.settings.Derive), wrong: make(map[resource.Key]string)}
	for _, k := range derive.Kinds {
		if k.Kind == "Service" && !r.settings.Derive.AllServices {
			continue
		}
		d.streams = append(d.streams, r.add(&kind{
			group: k.Group, plural: k.Plural, versions: k.Versions, fixed: k.Group == "", cluster: !k.Namespaced,
			use: derivable{d, k.Kind, strings.TrimPrefix(k.Group+"/"+k.Versions[0], "/")},
		})...)
	}
	return d
}

// derivable are the objects of a kind from which others are derived.
type derivable struct {
	*derived
	kind       string
	apiVersion string // of objects that do not say it, as those of Kubernetes itself in lists
}

func (u derivable) groups() string { return "" }

func (u derivable) put(m meta, object json.RawMessage) (take func(), err error) {
	return func() {
		key := resource.Key{Kind: resource.Kind(u.kind), Namespace: m.Namespace, Name: m.Name}
		delete(u.wrong, key)
		if err := u.set.Put(cmp.Or(m.apiVersion, u.apiVersion), u.kind, u.origin(u.kind, m), object); err != nil {
			u.wrong[key] = fmt.Sprintf("%s: %v: the version before it counts", u.origin(u.kind, m), err)
		}
		u.dirty = true
	}, nil
}

func (u derivable) drop(key string) {
	namespace, name, _ := strings.Cut(key, "/")
	u.set.Delete(u.kind, namespace, name)
	delete(u.wrong, resource.Key{Kind: resource.Kind(u.kind), Namespace: namespace, Name: name})
	u.dirty = true
}

// contents derives everything anew, if something has changed and all is known. What an earlier run published stays until then.
func (d *derived) contents(now time.Time) []sources.Content {
	if !d.dirty && !d.inherited || slices.ContainsFunc(d.streams, func(s *stream) bool { return !s.known(now, s.cluster) }) {
		return nil
	}
	d.dirty, d.inherited = false, false
	content := sources.Content{Group: derivedGroup}
	resources, problems := d.set.Derive()
	content.Resources = resources
	for i := range problems {
		content.Warnings = append(content.Warnings, problems[i].Error())
	}
	content.Warnings = slices.AppendSeq(content.Warnings, maps.Values(d.wrong))
	slices.Sort(content.Warnings)
	return []sources.Content{content}
}
