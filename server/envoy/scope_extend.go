package envoy

import (
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/extend"
	"tributary/server/envoy/model"
	"tributary/server/envoy/translate"
	"tributary/server/xds"
)

// note replaces the findings of a source, and the patches that it was changed by.
func (c *change) note(source string, found, applied model.Findings) {
	c.findings.set(source, found)
	c.applied.set(source, applied)
}

// putListener serves a listener as the patches of a context have it, with what was found in it before.
func (c *change) putListener(l *listenerv3.Listener, context networking.EnvoyFilter_PatchContext, found model.Findings) {
	name := l.GetName()
	p := translate.Patcher(c.options.Extension, context, model.ToListeners)
	l, kept := p.Listener(l)
	c.note("listener "+name, append(found, p.Findings...).Sorted(), p.Applied.Sorted())
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
	if routes := extend.Only(e, model.ToRoutes); !routes.Equal(c.routePatches) {
		c.routePatches = routes
		for route := range c.shared {
			c.routes[route] = true
		}
	}
	var found model.Findings
	if e != nil {
		found = e.Findings
	}
	c.note("what patches and plugins say", found, nil)
	if c.profile.Role == model.Proxyless {
		return
	}
	patches := translate.Patcher(e, translate.ContextOf(c.profile.Role), model.ToClusters)
	for _, cluster := range translate.SidecarClusters() {
		if patched, kept := patches.Cluster(cluster); kept {
			put(c.commits, c.clusters, translate.EntryOf(patched))
		} else {
			remove(c.commits, c.clusters, cluster.GetName())
		}
	}
	clusters, listeners, applied, refused := translate.Added(e, c.profile.Role)
	c.note("what patches add", append(refused, patches.Findings...).Sorted(), append(applied, patches.Applied...).Sorted())
	c.entries(c.clusters, c.added[xds.ClusterURL], clusters)
	c.entries(c.listeners, c.added[xds.ListenerURL], listeners)
	c.added = map[string][]*xds.Entry{xds.ClusterURL: clusters, xds.ListenerURL: listeners}
}
