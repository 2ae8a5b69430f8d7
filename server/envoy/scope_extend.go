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
const extensionFindings = "what patches and plugins say"

// putListener serves a listener as the patches of a context have it, with what was found in it before.
func (c *change) putListener(l *listenerv3.Listener, context networking.EnvoyFilter_PatchContext, found model.Findings) {
	name := l.GetName()
	l, kept := extend.New(c.options.Extension, context, &found).Listener(l)
	c.findings.set("listener "+name, found.Sorted())
	if !kept || len(l.GetFilterChains()) == 0 && l.GetDefaultFilterChain() == nil { // Envoy wants one
		remove(c.commits, c.listeners, name)
		return
	}
	if c.profile.OnDemand && !l.GetUseOriginalDst().GetValue() { // whose own connections go to clusters that are there
		translate.OnDemand(l)
	}
	put(c.commits, c.listeners, c.bodies.one(translate.EntryOf(l)))
}

// setExtension serves what patches change of resources that no host has, and what they add.
func (c *change) setExtension(e *model.Extension) {
	if routes := extend.Only(e, extend.RoutePhases); !routes.Equal(c.routePatches) {
		c.routePatches = routes
		for route := range c.shared {
			c.routes[route] = true
		}
	}
	var found model.Findings
	if e != nil {
		found = slices.Clone(e.Findings)
	}
	patches := extend.New(e, extend.ContextOf(c.profile.Role), &found)
	for _, cluster := range translate.SidecarClusters() {
		if patched, kept := patches.Cluster(cluster); kept {
			put(c.commits, c.clusters, translate.EntryOf(patched))
		} else {
			remove(c.commits, c.clusters, cluster.GetName())
		}
	}
	added := make(map[string][]*xds.Entry)
	for _, m := range extend.Added(e, c.profile.Role, &found) {
		added[model.TypeURL(m)] = append(added[model.TypeURL(m)], translate.EntryOf(m))
	}
	c.entries(c.clusters, c.added[xds.ClusterURL], added[xds.ClusterURL])
	c.entries(c.listeners, c.added[xds.ListenerURL], added[xds.ListenerURL])
	c.added = added
	c.findings.set(extensionFindings, found.Sorted())
}
