package envoy

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/envoy/extend"
	"tributary/server/envoy/model"
	"tributary/server/envoy/translate"
	"tributary/server/xds"
)

// fallbackListener is Type.Fallback of Listeners. A held listener that cannot be decoded is unknown.
func fallbackListener(held, rejected *xds.Entry, again bool) (instead *xds.Entry, description string) {
	var has *listenerv3.Listener
	if l := new(listenerv3.Listener); held != nil && decode(held, l) {
		has = l
	}
	listener := new(listenerv3.Listener)
	if !decode(rejected, listener) || listener.GetApiListener() != nil {
		return nil, ""
	}
	l, description := extend.Fallback(has, listener, again)
	if l == nil {
		return nil, ""
	}
	return with(rejected, l), description
}

// maxChanged is how many objects are remembered with the revision of their last change.
const maxChanged = 10_000

// changedObjects are the objects that changed last. It is not safe for concurrent use.
type changedObjects struct {
	at     map[resource.Key]memstore.Revision
	before memstore.Revision // changes up to this one may be forgotten
}

// note notes that an object changed, or was deleted. When there are too many objects, the older half is forgotten.
func (c *changedObjects) note(key resource.Key, at memstore.Revision) {
	if c.at == nil {
		c.at = make(map[resource.Key]memstore.Revision)
	}
	c.at[key] = at
	if len(c.at) <= maxChanged {
		return
	}
	c.before = slices.Sorted(maps.Values(c.at))[len(c.at)/2]
	maps.DeleteFunc(c.at, func(_ resource.Key, at memstore.Revision) bool { return at <= c.before })
}

// since returns the objects that changed after a revision, and whether these are all of them.
func (c *changedObjects) since(revision memstore.Revision) (all map[resource.Key]bool, complete bool) {
	all = make(map[resource.Key]bool)
	for key, at := range c.at {
		if at > revision {
			all[key] = true
		}
	}
	return all, revision >= c.before
}

// ChangedSince returns the objects of a rejected resource that changed since the client last acknowledged it, and whether the list is
// complete: old changes, and changes of a collection no longer in use, are forgotten. If the client has acknowledged nothing, it returns
// all objects of which the resource is made. Objects whose patches or plugins are in the resource come first.
func (c *Catalog) ChangedSince(coll *xds.Collection, r xds.Rejection) (some []resource.Key, complete bool) {
	c.mu.RLock()
	changed, complete := c.changed.since(memstore.Revision(r.Revision))
	var in *variant
	var wide []resource.Key
	for s := range c.following {
		for _, v := range append(slices.Collect(maps.Values(s.variants)), newVariant(s, s.profile)) {
			if slices.Contains(v.all(), coll) {
				in, wide = v, c.mesh.OfNoHost(s.profile)
			}
		}
	}
	c.mu.RUnlock()
	if in == nil {
		return nil, false
	}
	extensions := in.extensionsOf(coll, r.Name)
	objects := in.objectsOf(coll, r.Name)
	for key := range extensions {
		objects[key] = true
	}
	for _, key := range wide {
		isExtension := key.Kind == resource.EnvoyFilter || key.Kind == resource.WasmPlugin || key.Kind == resource.Telemetry
		if changed[key] && (!isExtension || r.Name == "") {
			objects[key] = true
		}
	}
	for key := range objects {
		if (changed[key] || r.Revision == 0) && key.Kind != "" {
			some = append(some, key)
		}
	}
	rank := func(key resource.Key) int {
		if extensions[key] && key.Kind != resource.Telemetry {
			return 0
		}
		return 1
	}
	slices.SortFunc(some, func(a, b resource.Key) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), a.Compare(b)) })
	return some, complete
}

// extensionsOf returns the objects whose patches, plugins or logs are in a resource that hosts share, or in one without hosts.
func (v *variant) extensionsOf(coll *xds.Collection, name string) map[resource.Key]bool {
	var keys []resource.Key
	route, _, _ := strings.Cut(name, "/")
	switch coll {
	case v.listeners:
		keys = v.findings.applied("listener " + name)
		if seen := v.options.Observation; seen != nil {
			keys = append(keys, seen.Objects...)
		}
	case v.routes:
		keys = v.findings.applied("routes " + name)
	case v.virtualHosts:
		keys = v.findings.applied("routes " + route)
	}
	if e := v.options.Extension; e != nil && (coll == v.clusters || coll == v.listeners) && v.isAdded(coll, name) {
		keys = append(keys, v.findings.applied(extensionFindings)...)
	}
	objects := make(map[resource.Key]bool)
	for _, key := range keys {
		objects[key] = true
	}
	return objects
}

// isAdded reports whether a cluster or listener belongs to no host: patches add it, or change it for all clients.
func (v *variant) isAdded(coll *xds.Collection, name string) bool {
	return len(v.objectsOf(coll, name)) == 0
}

// objectsOf returns the objects of the hosts that have a part in a resource of a collection; of all hosts, if the name is empty.
func (v *variant) objectsOf(coll *xds.Collection, name string) map[resource.Key]bool {
	v.catching.Lock()
	defer v.catching.Unlock()
	all := make(map[resource.Key]bool)
	for host, t := range v.translations {
		if (host == v.unit || v.variants[host] == nil) && (name == "" || v.hasPart(t, coll, name)) {
			for _, key := range t.Objects {
				all[key] = true
			}
		}
	}
	return all
}

// hasPart reports whether a host has a part in a resource of a collection.
func (c *collections) hasPart(t *translate.Translation, coll *xds.Collection, name string) bool {
	var own []*xds.Entry
	switch coll {
	case c.clusters:
		own = t.Clusters
	case c.endpoints:
		own = t.Endpoints
	case c.listeners:
		own = t.Listeners
		if name == translate.ResolverName && len(t.Addresses) > 0 {
			return true
		}
		for _, of := range t.Claims {
			if model.ListenerName(of.Address, of.Port) == name {
				return true
			}
		}
	case c.routes:
		own = t.Routes
		if t.Hosts[name] != nil {
			return true
		}
	case c.virtualHosts: // a domain among some routes, as it is asked for: alone, or with the port
		for route, v := range t.Hosts {
			for _, d := range v.Domains {
				if part := route + "/" + d; part == name || part+":"+route == name {
					return true
				}
			}
		}
	}
	return slices.ContainsFunc(own, func(e *xds.Entry) bool { return e.Name == name })
}
