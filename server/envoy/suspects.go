package envoy

import (
	"maps"
	"slices"

	"tributary/resource"
	"tributary/server/xds"
)

// uncontradicted returns what was rejected and no other Envoy accepted as it is.
func (h *hearing) uncontradicted() []xds.Resource {
	envoys := make(map[*xds.Collection]bool) // of the type
	for _, s := range h.scopesOfEnvoys() {
		envoys[s.collection(h.about.TypeURL)] = true
	}
	return slices.DeleteFunc(slices.Clone(h.rejected), func(r xds.Resource) bool {
		return h.accepted(r, func(c *xds.Collection) bool { return envoys[c] })
	})
}

// accepted says whether another client accepted a resource of one of some collections.
func (h *hearing) accepted(r xds.Resource, of func(*xds.Collection) bool) bool {
	return h.witnesses().Accepted(r, func(stream uint64, c *xds.Collection) bool { return stream != h.about.StreamID && of(c) })
}

func (h *hearing) scopesOfEnvoys() (some []*scope) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for s := range h.following {
		if s.profile.role != proxyless {
			some = append(some, s)
		}
	}
	return some
}

// suspect is an object that may be guilty, and on which hosts it bears.
type suspect struct {
	*trial
	hosts map[string]struct{}
}

// suspects returns the objects that have changed and have a part in what was rejected, the one that changed last first, and after them, of what the client never
// had, those that were there from the start; and whether there would be others, or any, if no other Envoy had accepted what is made of them.
func (h *hearing) suspects() (some []*trial, cleared bool) {
	changed := h.changed(h.scope.hostsOf(h.about.TypeURL, names(h.rejected)))
	scopes := h.scopesAsTold()
	add := func(all []suspect, most int) {
		for _, s := range all {
			switch {
			case h.isWitnessed(s, scopes):
				cleared = true
			case len(some) < most:
				some = append(some, s.trial)
			}
		}
	}
	add(changed, maxSuspects)
	add(h.fromTheStart(changed), maxTrials)
	return some, cleared
}

// changed returns the objects on trial that bear on some hosts to the client, the one that changed last first.
func (h *hearing) changed(hosts map[string]struct{}) (all []suspect) {
	for _, t := range h.onTrial() {
		h.mu.Lock() // for each: nobody is to wait for all of them
		if h.bearsOn(t, hosts) {
			all = append(all, suspect{t, h.bears(t)})
		}
		h.mu.Unlock()
	}
	return all
}

// onTrial returns the objects that could be set aside for the client, the one that changed last first.
func (h *hearing) onTrial() []*trial {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.quarantine.suspects(h.scope.reach)
}

// hasChanged says whether something has changed, since the quarantine was at a turn, that bears on resources.
func (h *hearing) hasChanged(since uint64, all []xds.Resource) bool {
	hosts := h.scope.hostsOf(h.about.TypeURL, names(all))
	return slices.ContainsFunc(h.onTrial(), func(t *trial) bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return t.turn > since && h.bearsOn(t, hosts)
	})
}

// fromTheStart returns the objects of which that is made that the client never had, and that have not changed: before, they were not there. Some may have
// been wrong from the start.
func (h *hearing) fromTheStart(changed []suspect) (all []suspect) {
	never := slices.DeleteFunc(slices.Clone(h.rejected), func(r xds.Resource) bool { return !h.about.Lacks[r.Name] })
	if len(never) == 0 {
		return nil
	}
	of := h.scope.objectsOf(h.scope.hostsOf(h.about.TypeURL, names(never)))
	for _, s := range changed {
		delete(of, s.key)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, key := range h.mesh.ofNoHost(h.scope.profile) {
		of[key] = nil
	}
	h.quarantine.clean()
	for key, hosts := range of {
		if len(all) == maxTrials {
			break
		}
		if t := h.quarantine.recall(key, h.last.Get(key), h.scope.reach); t != nil {
			all = append(all, suspect{t, hosts})
		}
	}
	return all
}

// toldScope is a scope, and objects of which it is not told as they are.
type toldScope struct {
	*scope
	instead map[resource.Key]*resource.Resource
}

func (h *hearing) scopesAsTold() (all []toldScope) {
	for _, s := range h.scopesOfEnvoys() {
		h.mu.RLock()
		all = append(all, toldScope{s, h.quarantine.insteadOf(s)})
		h.mu.RUnlock()
	}
	return all
}

// isWitnessed says whether another Envoy has accepted the very piece that is made of an object as it is and that was rejected, as a part of something else. So nobody
// can speak against what all others have. That another one is told other things of the object, or nothing, and accepts those, says nothing.
func (h *hearing) isWitnessed(of suspect, scopes []toldScope) bool {
	pieces := h.piecesOf(of)
	for _, s := range scopes {
		if _, otherwise := s.instead[of.key]; otherwise {
			continue
		}
		for _, typeURL := range alike(h.about.TypeURL) {
			coll := s.collection(typeURL)
			if coll == nil {
				continue
			}
			if h.acceptedWide(of.key, s.scope, coll) {
				return true
			}
			for _, name := range h.within(s.scope, typeURL, pieces) {
				if e := coll.Get(name); e != nil && h.accepted(xds.Resource{Name: name, Version: e.Version}, func(c *xds.Collection) bool { return c == coll }) {
					return true
				}
			}
		}
	}
	return false
}

// unwitnessed returns those of the guilty of whom no other Envoy has accepted anything since they were suspected.
func (h *hearing) unwitnessed(guilty []*aside) []*aside {
	scopes := h.scopesAsTold()
	return slices.DeleteFunc(slices.Clone(guilty), func(a *aside) bool {
		h.mu.Lock()
		hosts := h.bears(a.trial)
		h.mu.Unlock()
		return h.isWitnessed(suspect{a.trial, hosts}, scopes)
	})
}

// alike are the types that say the same in other forms.
func alike(typeURL string) []string {
	if typeURL == xds.RouteURL || typeURL == xds.VHostURL {
		return []string{xds.RouteURL, xds.VHostURL}
	}
	return []string{typeURL}
}

// bearsOn says whether an object, as it is or as it was, bears on one of some hosts to the client; h.mu is held.
func (h *hearing) bearsOn(t *trial, hosts map[string]struct{}) bool {
	return slices.ContainsFunc(t.versions(), func(r *resource.Resource) bool {
		wide := false
		touched := h.under(map[resource.Key]*resource.Resource{t.key: r}, func() { wide = slices.Contains(h.mesh.ofNoHost(h.scope.profile), t.key) })
		return wide || meet(touched, hosts)
	})
}

// acceptedWide says whether clients of a scope have accepted something that was rejected, as they are told of it, and an object is for them that has no hosts.
func (h *hearing) acceptedWide(key resource.Key, s *scope, coll *xds.Collection) bool {
	h.mu.RLock()
	is := slices.Contains(h.mesh.ofNoHost(s.profile), key)
	h.mu.RUnlock()
	return is && coll != h.about.Collection && slices.ContainsFunc(h.rejected, func(r xds.Resource) bool {
		e := coll.Get(r.Name)
		return e != nil && h.accepted(xds.Resource{Name: e.Name, Version: e.Version}, func(c *xds.Collection) bool { return c == coll })
	})
}

func names(all []xds.Resource) map[string]bool {
	names := make(map[string]bool, len(all))
	for _, r := range all {
		names[r.Name] = true
	}
	return names
}

// isToldToOthers says whether clients of other profiles ask for something that was rejected, which is the same to them; or whether there are none to whom
// it could be otherwise.
func (h *hearing) isToldToOthers() bool {
	of := make(map[*xds.Collection]bool) // of other profiles
	for _, s := range h.scopesOfEnvoys() {
		if s.reach == h.scope.reach {
			continue
		}
		for _, typeURL := range alike(h.about.TypeURL) {
			if coll := s.collection(typeURL); coll != nil {
				of[coll] = true
			}
		}
	}
	others := false
	return h.witnesses().Sees(func(_ uint64, c *xds.Collection, wants func(string) bool) bool {
		others = others || of[c]
		return of[c] && slices.ContainsFunc(h.rejected, func(r xds.Resource) bool {
			e := c.Get(r.Name)
			return e != nil && e.Version == r.Version && wants(r.Name)
		})
	}) || !others
}

// inUse returns the profiles of which there are clients.
func (h *hearing) inUse() map[reach]bool {
	seen := make(map[*xds.Collection]bool)
	h.witnesses().Sees(func(_ uint64, c *xds.Collection, _ func(string) bool) bool {
		seen[c] = true
		return false
	})
	h.mu.RLock()
	defer h.mu.RUnlock()
	all := make(map[reach]bool)
	for s := range h.following {
		all[s.reach] = all[s.reach] || slices.ContainsFunc(s.all(), func(c *xds.Collection) bool { return seen[c] })
	}
	return all
}

// objectsOf returns the objects of which hosts are made, and of which hosts each.
func (s *scope) objectsOf(hosts map[string]struct{}) map[resource.Key]map[string]struct{} {
	s.catching.Lock()
	defer s.catching.Unlock()
	all := make(map[resource.Key]map[string]struct{})
	for host := range hosts {
		t := s.told[host]
		if t == nil {
			continue
		}
		for _, key := range t.objects {
			if all[key] == nil {
				all[key] = make(map[string]struct{})
			}
			all[key][host] = struct{}{}
		}
	}
	return all
}

// bears returns the hosts on which an object bears, as it is or as it was; c.mu is held.
func (c *Catalog) bears(t *trial) map[string]struct{} {
	touched := make(map[string]struct{})
	for _, r := range t.versions() {
		maps.Copy(touched, c.under(map[resource.Key]*resource.Resource{t.key: r}, func() {}))
	}
	return touched
}
