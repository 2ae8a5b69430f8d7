package index

import (
	extensionsv1alpha1 "istio.io/api/extensions/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/server/envoy/extend"
	"tributary/server/envoy/model"
)

func (m *Mesh) setExtension(key resource.Key, object *resource.Resource, spec any) {
	if key.Kind == resource.EnvoyFilter {
		m.filters.set(key, object, extend.Decode(key, specAs[*networking.EnvoyFilter](spec)))
	} else {
		m.plugins.set(key, object, specAs[*extensionsv1alpha1.WasmPlugin](spec))
		m.referencedHosts = nil
	}
	m.extensionsChanged()
}

// extensionsChanged makes all clients evaluate Telemetries, security objects, EnvoyFilters and WasmPlugins again.
func (m *Mesh) extensionsChanged() {
	m.ExtensionChanges++
	m.securityChanged()
}

// Extension returns the changes of EnvoyFilters and WasmPlugins for the clients of a profile, or nil.
func (m *Mesh) Extension(profile model.Profile, sidecar *Sidecar) *model.Extension {
	if profile.Role == model.Proxyless {
		return nil
	}
	extension := extend.ForProfile(forClient(m, m.filters, profile), forClient(m, m.plugins, profile), profile,
		func(host string, port uint32) (name, why string) {
			_, name, why = m.clusterTo(host, port, profile, sidecar)
			return name, why
		})
	if extension != nil {
		extension.Guards = m.GuardFilters
	}
	return extension
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

// proxies adds the versions and metadata of proxies that patches select by.
func (s Selectors) proxies(spec *networking.EnvoyFilter) {
	for _, patch := range spec.GetConfigPatches() {
		if patch.GetMatch().GetProxy().GetProxyVersion() != "" {
			s[Selector{attribute: versionAttribute}] = true
		}
		for name, value := range patch.GetMatch().GetProxy().GetMetadata() {
			s[Selector{attribute: metadataAttribute, name: name, value: value}] = true
		}
	}
}
