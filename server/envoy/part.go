package envoy

import (
	"slices"

	"tributary/resource"
	"tributary/server/xds"
)

// hostsOf returns the hosts that have a part in resources of a type.
func (s *scope) hostsOf(typeURL string, names map[string]bool) map[string]bool {
	s.catching.Lock()
	defer s.catching.Unlock()
	hosts := make(map[string]bool)
	for host, t := range s.told {
		if t.hasPart(typeURL, func(name string) bool { return names[name] }) {
			hosts[host] = true
		}
	}
	return hosts
}

// objectsOf adds the objects of which a resource of a type is made.
func (s *scope) objectsOf(typeURL, name string, all map[resource.Key]bool) {
	s.catching.Lock()
	defer s.catching.Unlock()
	for _, t := range s.told {
		if !t.hasPart(typeURL, func(n string) bool { return n == name }) {
			continue
		}
		for _, key := range t.objects {
			all[key] = true
		}
	}
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
