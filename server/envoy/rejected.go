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

// fallbackListener is Type.Fallback of Listeners. It treats an undecodable held listener as unknown.
func fallbackListener(held, rejected *xds.Entry, repeated bool) (instead *xds.Entry, description string) {
	var heldListener *listenerv3.Listener
	if substitute := new(listenerv3.Listener); held != nil && decode(held, substitute) {
		heldListener = substitute
	}
	listener := new(listenerv3.Listener)
	if !decode(rejected, listener) || listener.GetApiListener() != nil {
		return nil, ""
	}
	substitute, description := extend.Fallback(heldListener, listener, repeated)
	if substitute == nil {
		return nil, ""
	}
	return withMessage(rejected, substitute), description
}

// maxChanged limits the objects that are remembered with the revision of their last change.
const maxChanged = 10_000

// changedObjects has the most recently changed objects. It is not safe for concurrent use.
type changedObjects struct {
	revisions map[resource.Key]memstore.Revision
	before    memstore.Revision // changes up to this revision may be missing
}

// note records that an object changed, or was deleted. Beyond maxChanged it drops the older half.
func (c *changedObjects) note(key resource.Key, revision memstore.Revision) {
	if c.revisions == nil {
		c.revisions = make(map[resource.Key]memstore.Revision)
	}
	c.revisions[key] = revision
	if len(c.revisions) <= maxChanged {
		return
	}
	c.before = slices.Sorted(maps.Values(c.revisions))[len(c.revisions)/2]
	maps.DeleteFunc(c.revisions, func(_ resource.Key, revision memstore.Revision) bool { return revision <= c.before })
}

// changedAfter returns the objects that changed after a revision, and whether the list is complete.
func (c *changedObjects) changedAfter(revision memstore.Revision) (objects map[resource.Key]bool, complete bool) {
	objects = make(map[resource.Key]bool)
	for key, changed := range c.revisions {
		if changed > revision {
			objects[key] = true
		}
	}
	return objects, revision >= c.before
}

// ChangedSince returns the objects of a rejected resource that changed since the client last acknowledged it, and
// whether the list is complete: the catalog forgets old changes, and changes of a collection no longer in use. If the
// client has acknowledged no version, the list has all objects of the resource. Objects with patches or plugins in the
// resource come first.
func (c *Catalog) ChangedSince(collection *xds.Collection, rejection xds.Rejection) (suspects []resource.Key,
	complete bool,
) {
	c.mu.RLock()
	changed, complete := c.recentChanges.changedAfter(memstore.Revision(rejection.Revision))
	var owner *workloadView
	var meshWide []resource.Key
	for s := range c.following {
		for _, view := range append(slices.Collect(maps.Values(s.workloadViews)), newWorkloadView(s, s.profile)) {
			if slices.Contains(view.list(), collection) {
				owner = view
				meshWide = c.mesh.MeshWideObjects(s.profile)
			}
		}
	}
	c.mu.RUnlock()
	if owner == nil {
		return nil, false
	}
	objects := owner.objectsOf(collection, rejection.Name)
	if objects == nil {
		return nil, false
	}
	extensions := owner.extensionsOf(collection, rejection.Name, len(objects) == 0)
	for key := range extensions {
		objects[key] = true
	}
	for _, key := range meshWide {
		isExtension := key.Kind == resource.EnvoyFilter || key.Kind == resource.WasmPlugin || key.Kind == resource.Telemetry
		if changed[key] && (!isExtension || rejection.Name == "") {
			objects[key] = true
		}
	}
	for key := range objects {
		if (changed[key] || rejection.Revision == 0) && key.Kind != "" {
			suspects = append(suspects, key)
		}
	}
	rank := func(key resource.Key) int {
		if extensions[key] && key.Kind != resource.Telemetry {
			return 0
		}
		return 1
	}
	slices.SortFunc(suspects, func(a, b resource.Key) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), a.Compare(b)) })
	return suspects, complete
}

// extensionsOf returns the objects with patches, plugins or logs in a resource that hosts share, or in one without
// hosts: patches add that cluster or listener, or change it for all clients.
func (view *workloadView) extensionsOf(
	collection *xds.Collection, name string, withoutHosts bool,
) map[resource.Key]bool {
	view.catching.Lock()
	options := view.listenerOptions
	view.catching.Unlock()
	var keys []resource.Key
	route, _, _ := strings.Cut(name, "/")
	switch collection {
	case view.listeners:
		keys = view.findings.applied("listener " + name)
		if options.Observation != nil {
			keys = append(keys, options.Observation.Objects...)
		}
	case view.routes:
		keys = view.findings.applied("routes " + name)
	case view.virtualHosts:
		keys = view.findings.applied("routes " + route)
	}
	if options.Extension != nil && withoutHosts && (collection == view.clusters || collection == view.listeners) {
		keys = append(keys, view.findings.applied(extensionFindings)...)
	}
	objects := make(map[resource.Key]bool)
	for _, key := range keys {
		objects[key] = true
	}
	return objects
}

// objectsOf returns the objects of the hosts that have a part in a resource of a collection, or of all hosts if the
// name is empty. It returns nil for a collection that is not in use any more.
func (view *workloadView) objectsOf(collection *xds.Collection, name string) map[resource.Key]bool {
	view.catching.Lock()
	defer view.catching.Unlock()
	if view.dropped {
		return nil
	}
	objects := make(map[resource.Key]bool)
	for host, translation := range view.translations {
		if (host == view.pseudoHost || view.workloadViews[host] == nil) &&
			(name == "" || view.hasPart(translation, collection, name)) {
			for _, key := range translation.Objects {
				objects[key] = true
			}
		}
	}
	return objects
}

// hasPart reports whether a host has a part in a resource of a collection.
func (c *collections) hasPart(translation *translate.Translation, collection *xds.Collection, name string) bool {
	var entries []*xds.Entry
	switch collection {
	case c.clusters:
		entries = translation.Clusters
	case c.endpoints:
		entries = translation.Endpoints
	case c.listeners:
		entries = translation.Listeners
		if name == translate.ResolverName && len(translation.Addresses) > 0 {
			return true
		}
		for _, claim := range translation.Claims {
			if model.ListenerName(claim.Address, claim.Port) == name {
				return true
			}
		}
	case c.routes:
		entries = translation.Routes
		if translation.Hosts[name] != nil {
			return true
		}
	case c.virtualHosts: // requested by route and domain, with or without the port
		for route, virtualHost := range translation.Hosts {
			for _, domain := range virtualHost.Domains {
				if part := route + "/" + domain; part == name || part+":"+route == name {
					return true
				}
			}
		}
	}
	return slices.ContainsFunc(entries, func(entry *xds.Entry) bool { return entry.Name == name })
}
