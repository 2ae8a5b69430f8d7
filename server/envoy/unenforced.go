package envoy

import (
	"slices"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/envoy/index"
	"tributary/server/envoy/model"
	"tributary/server/xds"
)

// An Envoy enforces security objects at the listeners of gateways and at inbound listeners. gRPC clients, and sidecars
// without inbound listeners, do not. Traffic that requires mutual TLS is refused at a client without an identity. The
// log and status name the objects.

// effectOfUnenforced returns a sentence about the clients that do not enforce an object.
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

// WhyUnenforced returns the effect of clients that do not enforce an object, and their collections: none if the object
// applies to no client.
func (c *Catalog) WhyUnenforced(key resource.Key) (effect string, served []*xds.Collection) {
	effect = c.effectOfUnenforced(key)
	c.mu.RLock()
	defer c.mu.RUnlock()
	for s := range c.following {
		mutual := key.Kind == resource.DestinationRule && s.profile.Identity == ""
		if s.clients.Load() > 0 && (mutual || slices.Contains(c.mesh.Unenforced(s.profile), key)) {
			served = append(served, s.list()...)
		}
	}
	return effect, served
}

// Unenforced returns the security objects that the clients of the catalog do not enforce, in order. It is empty without
// clients, or if Options only warn of them.
func (c *Catalog) Unenforced() (keys []resource.Key) {
	if c.options.WarnUnenforced {
		return nil
	}
	keys, _ = c.unenforced()
	return keys
}

// unenforced returns the security objects that clients do not enforce, in order, and the view that contains them.
func (c *Catalog) unenforced() (keys []resource.Key, snapshot memstore.Snapshot) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	identified := true
	profiles := c.profiles()
	for _, profile := range profiles {
		keys = append(keys, c.mesh.Unenforced(profile)...)
		identified = identified && profile.Identity != ""
	}
	if len(profiles) > 0 {
		keys = append(keys, c.mesh.Unattached(profiles)...)
	}
	for key, rule := range c.mesh.Policies.ByKey {
		if !identified && index.WantsMutual(&model.Policy{
			Traffic: rule.Spec.GetTrafficPolicy(),
			Subsets: rule.Spec.GetSubsets(),
		}) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, resource.Key.Compare)
	return slices.Compact(keys), c.last
}

// profiles returns the profiles of connected clients, without the ports that they serve; c.mu is held.
func (c *Catalog) profiles() (profiles []model.Profile) {
	for s := range c.following {
		if s.clients.Load() > 0 {
			profiles = append(profiles, s.profile)
		}
	}
	return profiles
}

// maxWarned limits the objects that a log message names; the rest is counted.
const maxWarned = 20

// warnUnenforced logs unenforced objects that the log does not have yet.
func (c *Catalog) warnUnenforced() {
	if !c.warningDue() {
		return
	}
	objects, snapshot := c.unenforced()
	c.mu.Lock()
	news := slices.DeleteFunc(objects, func(key resource.Key) bool {
		_, warned := slices.BinarySearchFunc(c.warned, key, resource.Key.Compare)
		return warned
	})
	c.warned = append(slices.DeleteFunc(c.warned, func(key resource.Key) bool { return snapshot.Get(key) == nil }),
		news...)
	slices.SortFunc(c.warned, resource.Key.Compare)
	c.mu.Unlock()
	for _, key := range news[:min(len(news), maxWarned)] {
		if object := snapshot.Get(key); object != nil {
			c.log.Warn("security object is not enforced on Envoys and gRPC clients", "object", key.String(), "origin",
				object.Origin().String(),
				"effect", c.effectOfUnenforced(key))
		}
	}
	if remaining := len(news) - maxWarned; remaining > 0 {
		c.log.Warn("security objects are not enforced on Envoys and gRPC clients; tributary status and /debug/no-effect "+
			"name them", "more", remaining)
	}
}

// warningDue reports whether the view or the scopes with clients changed since the last call.
func (c *Catalog) warningDue() bool {
	c.mu.RLock()
	due := c.warnedRevision != c.last.Revision() || c.warnedVisits != c.visits.Load()
	c.mu.RUnlock()
	if due {
		c.mu.Lock()
		c.warnedRevision = c.last.Revision()
		c.warnedVisits = c.visits.Load()
		c.mu.Unlock()
	}
	return due
}
