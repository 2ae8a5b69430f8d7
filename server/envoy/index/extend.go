package index

import (
	extensionsv1alpha1 "istio.io/api/extensions/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/server/envoy/extend"
	"tributary/server/envoy/model"
)

func (m *Mesh) setExtension(key resource.Key, r *resource.Resource, spec any, touched map[string]struct{}) {
	if key.Kind == resource.EnvoyFilter {
		m.filters.set(key, r, extend.Decode(key, as[*networking.EnvoyFilter](spec)))
	} else {
		m.plugins.set(key, r, as[*extensionsv1alpha1.WasmPlugin](spec))
		m.sought = nil
	}
	m.extendAnew(touched)
}

// extendAnew has all clients look again at what they log and trace, and at what security objects, EnvoyFilters and WasmPlugins ask of them.
func (m *Mesh) extendAnew(touched map[string]struct{}) {
	m.Extends++
	secureAnew(touched)
}

// Extension returns what EnvoyFilters and WasmPlugins change for the clients of a profile, or nil.
func (m *Mesh) Extension(p model.Profile, only *SidecarRule) *model.Extension {
	if p.Role == model.Proxyless {
		return nil
	}
	e := extend.ForProfile(forClient(m, m.filters, p), forClient(m, m.plugins, p), p, func(host string, port uint32) (name, why string) {
		_, name, why = m.clusterTo(host, port, p, only)
		return name, why
	})
	if e != nil {
		e.Guards = m.GuardFilters
	}
	return e
}

// PatchesOf returns the patches of an EnvoyFilter that can have an effect.
func (m *Mesh) PatchesOf(key resource.Key) []*model.Patch {
	for _, o := range m.filters[key.Namespace] {
		if o.Key == key {
			return o.Spec.Patches
		}
	}
	return nil
}

// proxies adds what clients say of themselves by which patches select them.
func (s Selectors) proxies(spec *networking.EnvoyFilter) {
	for _, c := range spec.GetConfigPatches() {
		if c.GetMatch().GetProxy().GetProxyVersion() != "" {
			s[Selector{attribute: versionAttribute}] = struct{}{}
		}
		for name, value := range c.GetMatch().GetProxy().GetMetadata() {
			s[Selector{attribute: metadataAttribute, name: name, value: value}] = struct{}{}
		}
	}
}
