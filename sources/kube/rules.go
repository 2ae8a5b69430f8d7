package kube

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

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
	content := sources.Content{Group: u.groups() + m.key()}
	if rev := m.Labels["istio.io/rev"]; u.settings.Revision == "" || rev == "" || rev == u.settings.Revision {
		content = u.content(content.Group, m, object)
	}
	return func() { u.pending[content.Group] = content }, nil
}

func (u *rules) drop(key string) {
	group := u.groups() + key
	u.pending[group] = sources.Content{Group: group}
}

// content makes an object the content of its group.
func (u *rules) content(group string, m meta, object json.RawMessage) sources.Content {
	content := sources.Decode(group, ".json", object, u.decode)
	origin := u.origin(string(u.kind), m)
	for i, r := range content.Resources {
		content.Resources[i] = r.WithOrigin(origin)
	}
	for i := range content.Rejects {
		reject := &content.Rejects[i]
		reject.Key = resource.Key{Kind: u.kind, Namespace: m.Namespace, Name: m.Name}
		reject.Origin = origin
		for _, e := range resource.ErrorsIn(reject.Err) {
			e.Origin = origin
		}
	}
	for i, w := range content.Warnings {
		content.Warnings[i] = origin.Place + ":" + strings.TrimLeft(strings.TrimPrefix(w, ".json"), ":0123456789")
	}
	content.Renamable = false
	return content
}

// origin is where an object is, for people.
func (r *run) origin(kind string, m meta) resource.Origin {
	return resource.Origin{Place: fmt.Sprintf("%s %s %s", r.shown, kind, m.key())}
}
