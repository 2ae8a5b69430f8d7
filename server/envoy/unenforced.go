package envoy

import (
	"cmp"
	"slices"

	networking "istio.io/api/networking/v1alpha3"
	security "istio.io/api/security/v1beta1"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/envoy/index"
	"tributary/server/envoy/model"
)

// Istio's security objects are not enforced on Envoys and gRPC clients yet. The log and status name those of a mesh. Traffic for which a
// DestinationRule wants ISTIO_MUTUAL is refused, not sent in plaintext. Mutual TLS is enforced on Envoys with an identity.

// unenforced returns the effect of clients not enforcing an object, or "" if it asks for nothing that they do not enforce.
func unenforced(r *resource.Resource) string {
	switch r.Key().Kind {
	case resource.AuthorizationPolicy:
		return "no request is denied"
	case resource.RequestAuthentication:
		return "no token is verified"
	case resource.PeerAuthentication:
		spec, err := index.SpecOf[*security.PeerAuthentication](r)
		strict := func(m *security.PeerAuthentication_MutualTLS) bool {
			return m.GetMode() == security.PeerAuthentication_MutualTLS_STRICT
		}
		if err != nil || strict(spec.GetMtls()) {
			return "plaintext is accepted"
		}
		for _, m := range spec.GetPortLevelMtls() {
			if strict(m) {
				return "plaintext is accepted"
			}
		}
	case resource.DestinationRule:
		if spec, err := index.SpecOf[*networking.DestinationRule](r); err != nil || wantsMutual(spec) {
			return "clients without an identity have no endpoints for ISTIO_MUTUAL, and requests get 503"
		}
	}
	return ""
}

func wantsMutual(spec *networking.DestinationRule) bool {
	of := func(p *networking.TrafficPolicy) bool {
		return model.IsMutual(p.GetTls()) || slices.ContainsFunc(p.GetPortLevelSettings(),
			func(s *networking.TrafficPolicy_PortTrafficPolicy) bool { return model.IsMutual(s.GetTls()) })
	}
	return of(spec.GetTrafficPolicy()) || slices.ContainsFunc(spec.GetSubsets(),
		func(s *networking.Subset) bool { return of(s.GetTrafficPolicy()) })
}

// Unenforced returns the security objects that the clients of the catalog do not enforce, in order. It is empty if there are no clients, or
// Options allow it.
func (c *Catalog) Unenforced() (keys []resource.Key) {
	if c.opts.AllowUnenforced || !c.hasClients() {
		return nil
	}
	keys, _ = c.unenforced(c.lackIdentity())
	return keys
}

func (c *Catalog) hasClients() bool { return c.hasSome(func(*model.Profile) bool { return true }) }

// lackIdentity says whether some client lacks an identity.
func (c *Catalog) lackIdentity() bool {
	return c.hasSome(func(p *model.Profile) bool { return p.Identity == "" })
}

// hasSome says whether there is such a client.
func (c *Catalog) hasSome(is func(*model.Profile) bool) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for s := range c.following {
		if s.users.Load() > 0 && is(&s.profile) {
			return true
		}
	}
	return false
}

// unenforced returns the security objects that clients would not enforce, in order, and the view that has them. Some clients may lack an
// identity.
func (c *Catalog) unenforced(lacking bool) (keys []resource.Key, snap memstore.Snapshot) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, kind := range []resource.Kind{resource.AuthorizationPolicy, resource.RequestAuthentication, resource.PeerAuthentication} {
		for r := range c.last.List(kind, "") {
			if unenforced(r) != "" && (lacking || kind != resource.PeerAuthentication) {
				keys = append(keys, r.Key())
			}
		}
	}
	for key, rule := range c.mesh.Policies.ByKey {
		if lacking && wantsMutual(rule.Spec) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, resource.Key.Compare)
	return keys, c.last
}

// maxWarned is how many objects are named in the log at once; the others are counted.
const maxWarned = 20

// warnUnenforced logs the objects that clients do not enforce and that were not logged yet.
func (c *Catalog) warnUnenforced() {
	if c.opts.AllowUnenforced || !c.hasClients() {
		return
	}
	c.warning.Lock()
	defer c.warning.Unlock()
	lacking := c.warnedLacking || c.lackIdentity() // nothing is logged again because clients come and go
	c.mu.RLock()
	revision := c.last.Revision()
	c.mu.RUnlock()
	if revision == c.warnedAt && lacking == c.warnedLacking {
		return
	}
	all, snap := c.unenforced(lacking)
	news := slices.DeleteFunc(slices.Clone(all), func(key resource.Key) bool {
		_, was := slices.BinarySearchFunc(c.warned, key, resource.Key.Compare)
		return was
	})
	c.warned, c.warnedAt, c.warnedLacking = all, snap.Revision(), lacking
	for _, key := range news[:min(len(news), maxWarned)] {
		if r := snap.Get(key); r != nil {
			c.log.Warn("security object is not enforced on Envoys and gRPC clients", "object", key.String(), "origin", r.Origin().String(), "effect",
				cmp.Or(unenforced(r), "none"))
		}
	}
	if more := len(news) - maxWarned; more > 0 {
		c.log.Warn("security objects are not enforced on Envoys and gRPC clients; tributary status and /debug/no-effect name them", "more", more)
	}
}
