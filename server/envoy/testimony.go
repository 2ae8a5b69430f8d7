package envoy

import (
	"slices"

	"tributary/resource"
	"tributary/server/xds"
)

// testimony is what other Envoys have accepted, as they are when they are called. They are asked of very many suspects, most of which have a part in the same few
// resources: what was said of one is not asked again.
type testimony struct {
	*hearing
	audience xds.Audience
	scopes   []toldScope
	said     map[statement]bool
}

// toldScope is a scope, and of what it is not told as it is.
type toldScope struct {
	*scope
	instead  map[resource.Key]*resource.Resource
	ofNoHost []resource.Key // that bear on it all the same
}

// statement is whether somebody accepted a version of a resource.
type statement struct {
	coll *xds.Collection
	xds.Resource
}

// call calls the other Envoys as witnesses.
func (h *hearing) call() *testimony {
	w := &testimony{hearing: h, audience: h.witnesses().Audience(), said: make(map[statement]bool)}
	for _, s := range h.scopesOfEnvoys() {
		h.mu.RLock()
		w.scopes = append(w.scopes, toldScope{s, h.quarantine.insteadOf(s), h.mesh.ofNoHost(s.profile)})
		h.mu.RUnlock()
	}
	return w
}

// speaksFor says whether another Envoy has accepted the very piece that is made of an object as it is and that was rejected, as a part of something else. So nobody
// can speak against what all others have. That another one is told other things of the object, or nothing, and accepts those, says nothing.
func (w *testimony) speaksFor(of suspect) bool {
	pieces := w.piecesOf(of)
	for _, s := range w.scopes {
		if _, otherwise := s.instead[of.key]; otherwise {
			continue
		}
		for _, typeURL := range alike(w.about.TypeURL) {
			coll := s.collection(typeURL)
			if len(w.audience[coll]) == 0 {
				continue
			}
			if slices.Contains(s.ofNoHost, of.key) && w.acceptedAny(coll) {
				return true
			}
			if slices.ContainsFunc(w.within(s.scope, typeURL, pieces), func(name string) bool { return w.accepted(coll, name) }) {
				return true
			}
		}
	}
	return false
}

// acceptedAny says whether others than those who are told the same have accepted something that was rejected, as they are told of it.
func (w *testimony) acceptedAny(coll *xds.Collection) bool {
	return coll != w.about.Collection && slices.ContainsFunc(w.rejected, func(r xds.Resource) bool { return w.accepted(coll, r.Name) })
}

// accepted says whether a client has accepted a resource of a collection, as it is.
func (w *testimony) accepted(coll *xds.Collection, name string) bool {
	e := coll.Get(name)
	if e == nil {
		return false
	}
	t := statement{coll, xds.Resource{Name: name, Version: e.Version}}
	is, known := w.said[t]
	if !known {
		is = w.audience.Accepted(coll, t.Resource, w.about.StreamID)
		w.said[t] = is
	}
	return is
}

// unwitnessed returns those of the guilty of whom no other Envoy has accepted anything since they were suspected.
func (h *hearing) unwitnessed(guilty []*aside) []*aside {
	testimony := h.call()
	return slices.DeleteFunc(slices.Clone(guilty), func(a *aside) bool {
		h.mu.Lock()
		hosts := h.bears(a.trial)
		h.mu.Unlock()
		return testimony.speaksFor(suspect{a.trial, hosts})
	})
}
