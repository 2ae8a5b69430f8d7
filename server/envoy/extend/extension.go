package extend

import (
	"cmp"
	"regexp"
	"slices"

	"google.golang.org/protobuf/proto"
	extensionsv1alpha1 "istio.io/api/extensions/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/model"
)

// Filter is an EnvoyFilter with its patches. It is not modified once it was made.
type Filter struct {
	model.Object[*networking.EnvoyFilter]
	Patches []*model.Patch // that can have an effect
	found   model.Findings
}

// NewFilter decodes the patches of an EnvoyFilter.
func NewFilter(o model.Object[*networking.EnvoyFilter]) *Filter {
	f := &Filter{Object: o}
	f.Patches, f.found = Decode(o.Key, o.Spec)
	return f
}

// compare orders EnvoyFilters as they are applied: by priority, those of the root namespace first, the oldest first.
func (f *Filter) compare(o *Filter) int {
	after := func(f *Filter) int {
		if f.Key.Namespace == model.RootNamespace {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(f.Spec.GetPriority(), o.Spec.GetPriority()), cmp.Compare(after(f), after(o)), f.Compare(&o.Object))
}

// WasmPlugin is a WasmPlugin.
type WasmPlugin = model.Object[*extensionsv1alpha1.WasmPlugin]

// Of returns what EnvoyFilters and WasmPlugins change for the clients of a profile, which they select, or nil. cluster returns the cluster
// of a port of a host, or why there is none.
func Of(filters []*Filter, plugins []*WasmPlugin, client model.Profile, cluster func(host string, port uint32) (name, why string),
) *model.Extension {
	if len(filters)+len(plugins) == 0 {
		return nil
	}
	e := &model.Extension{MaxProgram: client.LargestProgram()}
	for _, f := range slices.SortedStableFunc(slices.Values(filters), (*Filter).compare) {
		e.Objects = append(e.Objects, f.Key)
		e.Findings = append(e.Findings, f.found...)
		for _, p := range f.Patches {
			if isFor(p.Match.GetProxy(), client) {
				e.Patches = append(e.Patches, p)
			}
		}
	}
	for _, o := range slices.SortedStableFunc(slices.Values(plugins), func(a, b *WasmPlugin) int { return comparePlugins(a, b, client) }) {
		e.Objects = append(e.Objects, o.Key)
		if p := plugin(o, cluster, &e.Findings); p != nil {
			e.Plugins = append(e.Plugins, p)
		}
	}
	e.Findings = e.Findings.Sorted()
	e.From = digest(e)
	return e
}

// isFor says whether a patch is for the clients of a profile.
func isFor(m *networking.EnvoyFilter_ProxyMatch, client model.Profile) bool {
	if expression := m.GetProxyVersion(); expression != "" {
		re, err := regexp.Compile(expression)
		if err != nil || client.Version == "" || !re.MatchString(client.Version) {
			return false
		}
	}
	has := model.LabelMapOf(client.Metadata)
	for name, value := range m.GetMetadata() {
		if got, ok := has[name]; !ok || got != value {
			return false
		}
	}
	return true
}

// Only returns the part of an extension that patches some things, or nil if nothing does.
func Only(e *model.Extension, to []networking.EnvoyFilter_ApplyTo) *model.Extension {
	if e == nil {
		return nil
	}
	part := &model.Extension{MaxProgram: e.MaxProgram}
	for _, p := range e.Patches {
		if slices.Contains(to, p.ApplyTo) {
			part.Patches = append(part.Patches, p)
		}
	}
	if len(part.Patches) == 0 {
		return nil
	}
	part.From = digest(part)
	return part
}

func digest(e *model.Extension) string {
	var from model.Digest
	from.Number(int64(e.MaxProgram))
	from.Number(int64(len(e.Patches)))
	for _, p := range e.Patches {
		from.Object(p.Of)
		from.Text(p.Field, string(model.MustMarshal(p.Match)))
		from.Number(int64(p.ApplyTo))
		from.Number(int64(p.Operation))
		if from.Flag(p.Value != nil); p.Value != nil {
			from.Text(string(model.MustMarshal(p.Value)))
		}
	}
	from.Number(int64(len(e.Plugins)))
	for _, p := range e.Plugins {
		for _, m := range []proto.Message{p.Spec, p.HTTP, p.Network} {
			from.Text(string(model.MustMarshal(m)))
		}
	}
	from.Number(int64(len(e.Objects)))
	for _, key := range e.Objects {
		from.Object(key)
	}
	for _, f := range e.Findings {
		from.Object(f.Of)
		from.Text(f.Field, f.Why)
		from.Flag(f.Has)
	}
	return string(from)
}
