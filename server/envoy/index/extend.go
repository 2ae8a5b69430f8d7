package index

import (
	"maps"
	"net/url"
	"slices"
	"strings"

	extensionsv1alpha1 "istio.io/api/extensions/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	typev1beta1 "istio.io/api/type/v1beta1"

	"tributary/resource"
	"tributary/server/envoy/extend"
	"tributary/server/envoy/model"
)

func (m *Mesh) setExtension(key resource.Key, r *resource.Resource, spec any, touched map[string]struct{}) {
	delete(m.filters, key)
	if f := as[*networking.EnvoyFilter](spec); f != nil {
		m.filters[key] = extend.NewFilter(model.Object[*networking.EnvoyFilter]{
			Key: key, Created: r.Created(), Version: r.Version(), Spec: f,
		})
	}
	old, now := m.plugins.set(key, r, as[*extensionsv1alpha1.WasmPlugin](spec))
	m.modules.count(moduleHosts(old), -1)
	m.modules.count(moduleHosts(now), 1)
	m.extendAnew(touched)
}

// moduleHosts returns the host from which the module of a plugin, which may be nil, is fetched, if there is one.
func moduleHosts(p *extensionsv1alpha1.WasmPlugin) []string {
	at, err := url.Parse(p.GetUrl())
	if err != nil || at.Hostname() == "" {
		return nil
	}
	return []string{strings.ToLower(at.Hostname())}
}

// extendAnew has all clients look again at what EnvoyFilters and WasmPlugins change for them.
func (m *Mesh) extendAnew(touched map[string]struct{}) {
	m.Extends++
	touched[model.GatewayUnit], touched[model.InboundUnit] = struct{}{}, struct{}{}
}

// Extension returns what EnvoyFilters and WasmPlugins change for the clients of a profile, or nil.
func (m *Mesh) Extension(p model.Profile, only *SidecarRule) *model.Extension {
	if p.Role == model.Proxyless {
		return nil
	}
	return extend.Of(m.filtersOf(p), m.pluginsOf(p), p, func(host string, port uint32) (name, why string) {
		_, name, why = m.clusterTo(host, port, p, only)
		return name, why
	})
}

// filtersOf returns the EnvoyFilters that select clients of a profile.
func (m *Mesh) filtersOf(p model.Profile) (list []*extend.Filter) {
	if len(m.filters) == 0 {
		return nil
	}
	labels := p.LabelMap()
	for _, key := range slices.SortedFunc(maps.Keys(m.filters), resource.Key.Compare) {
		if f := m.filters[key]; isExtended(key, filterTargets{f.Spec}, p, labels) {
			list = append(list, f)
		}
	}
	return list
}

// pluginsOf returns the WasmPlugins that select clients of a profile.
func (m *Mesh) pluginsOf(p model.Profile) []*extend.WasmPlugin {
	if len(m.plugins) == 0 {
		return nil
	}
	labels := p.LabelMap()
	return slices.Collect(m.plugins.selecting(p.Namespace, func(o *extend.WasmPlugin) bool { return isExtended(o.Key, o.Spec, p, labels) }))
}

// PatchesOf returns the patches of an EnvoyFilter that can have an effect.
func (m *Mesh) PatchesOf(key resource.Key) []*model.Patch {
	if f := m.filters[key]; f != nil {
		return f.Patches
	}
	return nil
}

// ExtendedLabels returns the labels of the clients that an EnvoyFilter or a WasmPlugin selects.
func ExtendedLabels(r *resource.Resource) (map[string]string, error) {
	spec, err := r.Spec()
	if err != nil {
		return nil, err
	}
	var t targets = filterTargets{as[*networking.EnvoyFilter](spec)}
	if p, ok := spec.(*extensionsv1alpha1.WasmPlugin); ok {
		t = p
	}
	if gateways, _ := references(r.Key().Namespace, t); len(gateways) > 0 {
		return map[string]string{gatewayNameLabel: gateways[0]}, nil
	}
	return t.GetSelector().GetMatchLabels(), nil
}

// isExtended says whether an object is for a client: of the client's namespace, or of the root namespace if it refers to no Gateway.
func isExtended(key resource.Key, spec targets, p model.Profile, labels map[string]string) bool {
	_, refers := references(key.Namespace, spec)
	return (key.Namespace == p.Namespace || key.Namespace == model.RootNamespace && !refers) && isTarget(key.Namespace, spec, p, labels)
}

// filterTargets is an EnvoyFilter, which has its labels in a field of another name.
type filterTargets struct{ spec *networking.EnvoyFilter }

func (t filterTargets) GetSelector() *typev1beta1.WorkloadSelector {
	return &typev1beta1.WorkloadSelector{MatchLabels: t.spec.GetWorkloadSelector().GetLabels()}
}

func (t filterTargets) GetTargetRef() *typev1beta1.PolicyTargetReference { return nil }

func (t filterTargets) GetTargetRefs() []*typev1beta1.PolicyTargetReference {
	return t.spec.GetTargetRefs()
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
