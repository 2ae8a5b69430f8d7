package envoy

import (
	"slices"
	"strings"

	"tributary/server/xds"
)

// hostsOf returns the hosts that have a part in resources of a type.
func (s *scope) hostsOf(typeURL string, names map[string]bool) map[string]struct{} {
	s.catching.Lock()
	defer s.catching.Unlock()
	hosts := make(map[string]struct{})
	for host, t := range s.told {
		if t.hasPart(typeURL, func(name string) bool { return names[name] }) {
			hosts[host] = struct{}{}
		}
	}
	return hosts
}

// piece is a host's part in routes.
type piece struct{ host, route string }

// piecesOf returns the virtual hosts that are made of an object for the client, among the routes of which some were rejected. Nothing else is a part that others can have
// as it is in something else: what has a name of its own is rejected and accepted under that (uncontradicted), and a listener is made of all its hosts together.
func (h *hearing) piecesOf(of suspect) map[piece]*virtualHost {
	all := make(map[piece]*virtualHost)
	if !slices.Contains(alike(h.about.TypeURL), xds.RouteURL) {
		return all
	}
	rejected := make(map[string]bool)
	for name := range names(h.rejected) {
		route, _, _ := strings.Cut(name, "/") // of a virtual host as well
		rejected[route] = true
	}
	h.scope.catching.Lock()
	defer h.scope.catching.Unlock()
	for host := range of.hosts {
		if t := h.scope.told[host]; t != nil && slices.Contains(t.objects, of.key) {
			for route, v := range t.hosts {
				if rejected[route] {
					all[piece{host, route}] = v
				}
			}
		}
	}
	return all
}

// within returns the names of the resources of a scope that have one of some pieces in them, as it is.
func (h *hearing) within(s *scope, typeURL string, pieces map[piece]*virtualHost) (names []string) {
	s.catching.Lock()
	defer s.catching.Unlock()
	h.mu.RLock()
	defer h.mu.RUnlock()
	for of, mine := range pieces {
		t := s.told[of.host]
		if _, stale := s.stale[of.host]; stale || t == nil || !mine.equal(t.hosts[of.route]) {
			continue
		}
		shared := s.shared[of.route]
		switch {
		case typeURL == xds.VHostURL:
			for _, d := range mine.domains {
				if shared == nil || shared.domains[d] > 1 {
					continue // it is another host's, or may be
				}
				name := of.route + "/" + d
				names = append(names, name, name+":"+of.route)
			}
		case !s.profile.onDemand || shared != nil && shared.whole: // else the routes that are told have no hosts
			names = append(names, of.route)
		}
	}
	return names
}

// hasPart says whether a host has a part in one of some resources of a type.
func (t *told) hasPart(typeURL string, is func(name string) bool) bool {
	var own []*xds.Entry
	switch typeURL {
	case xds.ClusterURL:
		own = t.clusters
	case xds.EndpointURL:
		own = t.endpoints
	case xds.ListenerURL:
		own = t.listeners
		for _, c := range t.claims {
			if is(listenerName(c.address, c.port)) {
				return true
			}
		}
	case xds.RouteURL:
		own = t.routes
		for route := range t.hosts {
			if is(route) {
				return true
			}
		}
	case xds.VHostURL: // a domain among some routes, as it is asked for: alone, or with the port
		for route, v := range t.hosts {
			for _, d := range v.domains {
				if name := route + "/" + d; is(name) || is(name+":"+route) {
					return true
				}
			}
		}
	}
	return slices.ContainsFunc(own, func(e *xds.Entry) bool { return is(e.Name) })
}
