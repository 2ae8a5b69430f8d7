package kube

import (
	"encoding/json"
	"fmt"
	"slices"

	"tributary/resource"
	"tributary/sources"
)

// readRules has the kinds of Istio read, whose objects are published as they are.
func (r *run) readRules() {
	for _, s := range resource.Schemas() {
		if s.Bare || len(r.settings.Kinds) > 0 && !slices.Contains(r.settings.Kinds, string(s.Kind)) {
			continue
		}
		prefix := string(s.Kind) + "/"
		r.read(kind{group: s.Group, plural: s.Plural, versions: s.Versions, selector: r.settings.LabelSelector, prefix: prefix},
			func(m meta, object json.RawMessage) (put func(), err error) {
				c := r.rule(s.Kind, m, object)
				return func() { r.pending[prefix+m.key()] = ready(c) }, nil
			})
	}
}

// rule decodes an object, if there is one.
func (r *run) rule(kind resource.Kind, m meta, object json.RawMessage) (c sources.Content) {
	var docs []resource.Document
	rev, origin := m.Labels["istio.io/rev"], r.origin(string(kind), m)
	if object != nil && (r.settings.Revision == "" || rev == "" || rev == r.settings.Revision) {
		docs = resource.Decode(".json", object, r.decode)
	}
	for _, doc := range docs {
		for _, e := range slices.Concat(doc.Errors, doc.Warnings) {
			e.Origin = origin
		}
		for _, w := range doc.Warnings {
			c.Warnings = append(c.Warnings, w.Error())
		}
		if len(doc.Errors) > 0 {
			key := resource.Key{Kind: kind, Namespace: m.Namespace, Name: m.Name}
			c.Rejects = append(c.Rejects, sources.Reject{Key: key, Origin: origin, Err: doc.Errors})
		} else if doc.Resource != nil {
			c.Resources = append(c.Resources, doc.Resource.WithOrigin(origin))
		}
	}
	return c
}

// origin is where an object is, for people.
func (r *run) origin(kind string, m meta) resource.Origin {
	return resource.Origin{Place: fmt.Sprintf("%s %s %s", r.shown, kind, m.key())}
}
