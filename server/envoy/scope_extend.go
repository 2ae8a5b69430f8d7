package envoy

import (
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/extend"
	"tributary/server/envoy/model"
	"tributary/server/envoy/translate"
	"tributary/server/xds"
)

// extensionFindings is the source of findings in resources that belong to no host.
const extensionFindings = "patches and plugins"

// putListener patches a listener and serves it. findings are those of its translation.
func (c *change) putListener(
	listener *listenerv3.Listener, context networking.EnvoyFilter_PatchContext, findings model.Findings,
) {
	name := listener.GetName()
	listener, keep := extend.New(c.listenerOptions.Extension, context, &findings).Listener(listener)
	c.findings.set("listener "+name, findings.Sorted())
	// Envoy requires a filter chain
	if !keep || len(listener.GetFilterChains()) == 0 && listener.GetDefaultFilterChain() == nil {
		c.remove(c.listeners, name)
		return
	}
	if c.profile.OnDemand && !listener.GetUseOriginalDst().GetValue() { // its own connections go to existing clusters
		translate.OnDemand(listener)
	}
	c.put(c.listeners, c.bodies.intern(translate.EntryOf(listener)))
}

// setExtension serves patched and added resources that belong to no host.
func (c *change) setExtension(extension *model.Extension) {
	if routes := extend.Only(extension, extend.RoutePhases); !routes.Equal(c.routePatches) {
		c.routePatches = routes
		for route := range c.shared {
			c.routes[route] = true
		}
	}
	var findings model.Findings
	if extension != nil {
		findings = slices.Clone(extension.Findings)
	}
	patches := extend.New(extension, extend.ContextOf(c.profile.Role), &findings)
	for _, cluster := range translate.SidecarClusters() {
		if patched, keep := patches.Cluster(cluster); keep {
			c.put(c.clusters, translate.EntryOf(patched))
		} else {
			c.remove(c.clusters, cluster.GetName())
		}
	}
	additions := make(map[string][]*xds.Entry)
	for _, message := range extend.Added(extension, c.profile.Role, &findings) {
		additions[model.TypeURL(message)] = append(additions[model.TypeURL(message)], translate.EntryOf(message))
	}
	c.replaceEntries(c.clusters, c.addedByPatches[xds.ClusterURL], additions[xds.ClusterURL])
	c.replaceEntries(c.listeners, c.addedByPatches[xds.ListenerURL], additions[xds.ListenerURL])
	c.addedByPatches = additions
	c.findings.set(extensionFindings, findings.Sorted())
}
