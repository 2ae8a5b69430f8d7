package envoy

import (
	"slices"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/envoy/index"
	"tributary/server/envoy/model"
	"tributary/server/xds"
)

// An Envoy enforces security objects at the listeners of gateways and at inbound listeners. gRPC clients, and sidecars without inbound
// listeners, do not. Traffic for which mutual TLS is wanted is refused where a client has no identity. The log and status name the objects.

// effectOfUnenforced returns what follows from clients not enforcing an object.
func (c *Catalog) effectOfUnenforced(key resource.Key) string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if why := c.mesh.WhyUnattached(key, c.profiles()); why != "" {
		return why
	}
	switch key.Kind {
	case resource.AuthorizationPolicy:
		return "clients without inbound listeners deny no request"
	case resource.RequestAuthentication:
		return "clients without inbound listeners verify no token"
	case resource.PeerAuthentication:
		return "clients without inbound listeners accept plaintext, and those without an identity refuse all connections"
	}
	return "clients without an identity have no endpoints for ISTIO_MUTUAL, and requests get 503"
}

// WhyUnenforced returns the effect of clients that do not enforce an object, and their collections. There are none if
// the object applies to no client.
func (c *Catalog) WhyUnenforced(key resource.Key) (effect string, served []*xds.Collection) {
	effect = c.effectOfUnenforced(key)
	c.mu.RLock()
	defer c.mu.RUnlock()
	for s := range c.following {
		mutual := key.Kind == resource.DestinationRule && s.profile.Identity == ""
		if s.users.Load() > 0 && (mutual || slices.Contains(c.mesh.Unenforced(s.profile), key)) {
			served = append(served, s.all()...)
		}
	}
	return effect, served
}

// Unenforced returns the security objects that the clients of the catalog do not enforce, in order. It is empty if there are no clients, or
// Options only warn of them.
func (c *Catalog) Unenforced() (keys []resource.Key) {
	if c.opts.WarnUnenforced {
		return nil
	}
	keys, _ = c.unenforced()
	return keys
}

// unenforced returns the security objects that clients do not enforce, in order, and the view that has them.
func (c *Catalog) unenforced() (keys []resource.Key, snap memstore.Snapshot) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	identified := true
	profiles := c.profiles()
	for _, p := range profiles {
		keys = append(keys, c.mesh.Unenforced(p)...)
		identified = identified && p.Identity != ""
	}
	if len(profiles) > 0 {
		keys = append(keys, c.mesh.Unattached(profiles)...)
	}
	for key, rule := range c.mesh.Policies.ByKey {
		if !identified && index.WantsMutual(&model.Policy{Traffic: rule.Spec.GetTrafficPolicy(), Subsets: rule.Spec.GetSubsets()}) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, resource.Key.Compare)
	return slices.Compact(keys), c.last
}

// profiles returns the profiles of connected clients, without the ports that they serve; c.mu is held.
func (c *Catalog) profiles() (profiles []model.Profile) {
	for s := range c.following {
		if s.users.Load() > 0 {
			profiles = append(profiles, s.profile)
		}
	}
	return profiles
}

// maxWarned is how many objects are named in the log at once; the others are counted.
const maxWarned = 20

// warnUnenforced logs the objects that clients do not enforce and that were not logged yet.
func (c *Catalog) warnUnenforced() {
	c.warning.Lock()
	defer c.warning.Unlock()
	c.mu.RLock()
	revision, visits := c.last.Revision(), c.visits.Load()
	c.mu.RUnlock()
	if revision == c.warnedAt && visits == c.warnedOf {
		return
	}
	all, snap := c.unenforced()
	news := slices.DeleteFunc(all, func(key resource.Key) bool {
		_, was := slices.BinarySearchFunc(c.warned, key, resource.Key.Compare)
		return was
	})
	c.warned = append(slices.DeleteFunc(c.warned, func(key resource.Key) bool { return snap.Get(key) == nil }), news...)
	slices.SortFunc(c.warned, resource.Key.Compare)
	c.warnedAt, c.warnedOf = snap.Revision(), visits
	for _, key := range news[:min(len(news), maxWarned)] {
		if r := snap.Get(key); r != nil {
			c.log.Warn("security object is not enforced on Envoys and gRPC clients", "object", key.String(), "origin", r.Origin().String(),
				"effect", c.effectOfUnenforced(key))
		}
	}
	if more := len(news) - maxWarned; more > 0 {
		c.log.Warn("security objects are not enforced on Envoys and gRPC clients; tributary status and /debug/no-effect name them", "more", more)
	}
}
