package kube

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/derive"
)

// readDerived has the kinds of other APIs read, of whose objects Istio's are made. All is derived anew if something has changed and all is
// known. What an earlier run published stays until then.
func (r *run) readDerived() {
	r.derived = derive.NewSet(*r.settings.Derive)
	var kinds []*kind
	wrong := make(map[string]string) // what is not understood, by group of the set
	content := func(now time.Time) (c sources.Content, changed bool) {
		if !r.known(now, kinds, "") {
			return c, false
		}
		if c, changed = r.derived.Content(func() string { return "" }); changed {
			c.Warnings = slices.Sorted(slices.Values(slices.AppendSeq(c.Warnings, maps.Values(wrong))))
		}
		return c, changed
	}
	r.pending[derive.Group] = content
	for _, k := range derive.Kinds {
		if k.Kind == "Service" && !r.settings.Derive.AllServices {
			continue
		}
		apiVersion := strings.TrimPrefix(k.Group+"/"+k.Versions[0], "/") // of objects that do not say it, as in lists of Kubernetes' own
		kinds = append(kinds, r.read(kind{group: k.Group, plural: k.Plural, versions: k.Versions, cluster: !k.Namespaced},
			func(m meta, object json.RawMessage) (put func(), err error) {
				key := resource.Key{Kind: resource.Kind(k.Kind), Namespace: m.Namespace, Name: m.Name}
				other := resource.Other{APIVersion: cmp.Or(m.apiVersion, apiVersion), JSON: object}
				c := sources.Content{Others: []sources.Other{{Other: other, Key: key, Origin: r.origin(k.Kind, m)}}}
				return func() {
					r.pending[derive.Group] = content
					delete(wrong, key.String())
					if object == nil {
						r.derived.Remove(key.String())
						return
					}
					r.derived.Replace(key.String(), &c)
					for _, reject := range c.Rejects {
						wrong[key.String()] = reject.Err.Error() + ": the version before it counts"
					}
				}, nil
			}))
	}
}
