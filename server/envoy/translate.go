package envoy

import (
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"tributary/server/xds"
)

// told is what the clients of a profile are told of a host. It is not modified once it was made, and shared by all profiles to which
// it is the same.
type told struct {
	service *service

	clusters, endpoints []*xds.Entry

	// Of a proxyless client, which asks for each port by name.
	listeners, routes []*xds.Entry

	// Of a sidecar, where several services share the routes and listeners of a port.
	hosts  map[uint32]*virtualHost // by port
	claims map[binding]claim
}

// translate says what clients in a role are told of a service. It is a pure function.
func translate(s *service, role role, captures bool) *told {
	t := &told{service: s, hosts: make(map[uint32]*virtualHost), claims: make(map[binding]claim)}
	for i := range s.ports {
		p := &s.ports[i]
		c := s.cluster(p, role)
		t.clusters = append(t.clusters, entryOf(c))
		if c.GetType() == clusterv3.Cluster_EDS {
			t.endpoints = append(t.endpoints, entryOf(p.assignment(role, xds.ChildOf(c), clusterv3.Cluster_EDS)))
		}
		if role == proxyless {
			t.addProxyless(p)
			continue
		}
		if p.protocol.http() {
			t.hosts[p.number] = s.virtualHost(p, role)
		}
		for b, c := range s.claims(p, captures) {
			t.claims[b] = c
		}
	}
	return t
}

// addProxyless adds what a client asks for that dials the service by the port, or, if it is the one that is meant without, by name alone.
func (t *told) addProxyless(p *port) {
	s := t.service
	if strings.Contains(s.host, "*") {
		return // nobody can dial that
	}
	body, name := s.grpcRoutes(p)
	t.routes = append(t.routes, entryOfBytes(name, xds.RouteURL, body))
	t.listeners = append(t.listeners, entryOf(s.grpcListener(p, hostPort(s.host, p.number))))
	if p == s.defaultPort() {
		t.listeners = append(t.listeners, entryOf(s.grpcListener(p, s.host)))
	}
}

// defaultPort is the port that is meant by a name without one: the first one that speaks HTTP/2, else the first one.
func (s *service) defaultPort() *port {
	for i := range s.ports {
		if s.ports[i].protocol == protocolHTTP2 {
			return &s.ports[i]
		}
	}
	return &s.ports[0]
}
