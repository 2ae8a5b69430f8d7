package kube

import (
	"encoding/json"
	"fmt"
	"slices"

	"tributary/resource"
	"tributary/sources"
)

// rules are the objects of a kind of Istio, which are published as they are.
type rules struct {
	*run
	kind resource.Kind
}

func (r *run) addRules() {
	for _, s := range resource.Schemas() {
		if s.Bare || len(r.settings.Kinds) > 0 && !slices.Contains(r.settings.Kinds, string(s.Kind)) {
			continue
		}
		r.add(&kind{group: s.Group, plural: s.Plural, versions: s.Versions, selector: r.settings.LabelSelector, use: &rules{r, s.Kind}})
	}
}

func (u *rules) groups() string { return string(u.kind) + "/" }

func (u *rules) put(m meta, object json.RawMessage) (take func(), err error) {
	content, origin := sources.Content{Group: u.groups() + m.key()}, u.origin(string(u.kind), m)
	var docs []resource.Document
	if rev := m.Labels["istio.io/rev"]; u.settings.Revision == "" || rev == "" || rev == u.settings.Revision {
		docs = resource.Decode(".json", object, u.decode)
	}
	for _, doc := range docs {
		for _, e := range slices.Concat(doc.Errors, doc.Warnings) {
			e.Origin = origin
		}
		for _, w := range doc.Warnings {
			content.Warnings = append(content.Warnings, w.Error())
		}
		if len(doc.Errors) > 0 {
			key := resource.Key{Kind: u.kind, Namespace: m.Namespace, Name: m.Name}
			content.Rejects = append(content.Rejects, sources.Reject{Key: key, Origin: origin, Err: doc.Errors})
		} else if doc.Resource != nil {
			content.Resources = append(content.Resources, doc.Resource.WithOrigin(origin))
		}
	}
	return func() { u.pending[content.Group] = content }, nil
}

func (u *rules) drop(key string) {
	group := u.groups() + key
	u.pending[group] = sources.Content{Group: group}
}

// origin is where an object is, for people.
func (r *run) origin(kind string, m meta) resource.Origin {
	return resource.Origin{Place: fmt.Sprintf("%s %s %s", r.shown, kind, m.key())}
}
