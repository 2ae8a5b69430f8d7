package envoy

import (
	"slices"

	"tributary/resource"
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

// madeOf returns the names of the resources of a type that are made of an object as it is, which bears on some hosts.
func (c *Catalog) madeOf(s *scope, key resource.Key, hosts map[string]struct{}, typeURL string) (names []string) {
	s.catching.Lock()
	defer s.catching.Unlock()
	c.mu.RLock()
	defer c.mu.RUnlock()
	for host := range hosts {
		if _, stale := s.stale[host]; stale {
			continue // it may be made of what the object was
		}
		if t := s.told[host]; t != nil && slices.Contains(t.objects, key) {
			t.hasPart(typeURL, func(name string) bool { names = append(names, name); return false })
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
