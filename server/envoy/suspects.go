package envoy

import (
	"maps"
	"slices"

	"tributary/resource"
	"tributary/server/xds"
)

// uncontradicted returns what was rejected and no other Envoy accepted as it is.
func (h *hearing) uncontradicted() []xds.Resource {
	var of []*xds.Collection
	for _, s := range h.scopesOfEnvoys() {
		if c := s.collection(h.about.TypeURL); c != nil {
			of = append(of, c)
		}
	}
	audience := h.witnesses().Audience()
	return slices.DeleteFunc(slices.Clone(h.rejected), func(r xds.Resource) bool {
		return slices.ContainsFunc(of, func(c *xds.Collection) bool { return audience.Accepted(c, r, h.about.StreamID) })
	})
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
	testimony := h.call()
	add := func(all []suspect, most int) {
		for _, s := range all {
			h.judge.giveWay(h.about.Host)
			switch {
			case testimony.speaksFor(s):
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
		h.judge.giveWay(h.about.Host)
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
// been wrong from the start. Of very many, some are returned at a time, in order of key.
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
	for _, key := range slices.SortedFunc(maps.Keys(of), resource.Key.Compare) {
		if h.past.upTo != (resource.Key{}) && key.Compare(h.past.upTo) <= 0 {
			continue
		}
		t := h.quarantine.recall(key, h.last.Get(key), h.scope.reach)
		if t == nil {
			continue
		}
		if len(all) == maxTrials {
			h.quarantine.dismiss(t)
			h.upTo = all[maxTrials-1].key
			break
		}
		all = append(all, suspect{t, of[key]})
		h.recalled = append(h.recalled, t)
	}
	return all
}

// dismiss lets go of those that were recalled.
func (h *hearing) dismiss() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.recalled {
		h.quarantine.dismiss(t)
	}
	h.recalled = nil
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
