package kube

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/derive"
)

// derived makes Istio's objects of those of other APIs. run.mu guards it.
type derived struct {
	*run
	*derive.Set
	streams []*stream
	wrong   map[string][]sources.Reject // what is not understood, by group
}

func newDerived(r *run) *derived {
	d := &derived{run: r, Set: derive.NewSet(*r.settings.Derive), wrong: make(map[string][]sources.Reject)}
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
	key := resource.Key{Kind: resource.Kind(u.kind), Namespace: m.Namespace, Name: m.Name}
	other := resource.Other{APIVersion: cmp.Or(m.apiVersion, u.apiVersion), JSON: object}
	c := sources.Content{Others: []sources.Other{{Other: other, Key: key, Origin: u.origin(u.kind, m)}}}
	return func() {
		u.Replace(u.kind+" "+m.key(), &c)
		u.wrong[u.kind+" "+m.key()] = c.Rejects
	}, nil
}

func (u derivable) drop(key string) {
	u.Remove(u.kind + " " + key)
	delete(u.wrong, u.kind+" "+key)
}

// contents derives everything anew, if something has changed and all is known. What an earlier run published stays until then.
func (d *derived) contents(now time.Time) []sources.Content {
	if slices.ContainsFunc(d.streams, func(s *stream) bool { return !s.known(now, s.cluster) }) {
		return nil
	}
	content, changed := d.Content(func() string { return "" })
	if !changed {
		return nil
	}
	for _, rejects := range d.wrong {
		for _, r := range rejects {
			content.Warnings = append(content.Warnings, r.Err.Error()+": the version before it counts")
		}
	}
	slices.Sort(content.Warnings)
	return []sources.Content{content}
}
