package envoy

import (
	"maps"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/server/xds"
)

// told is what the clients of a profile are told of a host. It is not modified once it was made, and shared by all profiles to which
// it is the same.
type told struct {
	host      string
	seniority // of the service

	clusters, endpoints []*xds.Entry
	secrets             []string // names, which say all about them

	listeners, routes []*xds.Entry // that are not shared with other hosts

	// Several hosts share the routes of a port, and a sidecar's listeners.
	hosts  map[string]*virtualHost // by the name of the routes
	claims []claimed

	objects  []resource.Key // of which it was made
	findings findings       // in them

	key   key // of the view that it was made of
	users int // scopes that have it; guarded by units.mu
}

// claimed is a claim of a binding. Most hosts have one, for which a map would be large.
type claimed struct {
	binding
	claim
}

func (t *told) claimsByBinding() map[binding]claim {
	all := make(map[binding]claim, len(t.claims))
	for _, c := range t.claims {
		all[c.binding] = c.claim
	}
	return all
}

// rankOf is that of a claim of the host: what is late comes after all that is not.
func (t *told) rankOf(c claim) seniority {
	s := t.seniority
	if c.late {
		s.reach += lateReach
	}
	return s
}

// lateReach is more than any reach that is not late.
const lateReach = 10

// translate says what the clients of a view are told of its host. It is a pure function.
func translate(v *view) *told {
	t := &told{host: v.host, hosts: make(map[string]*virtualHost), objects: v.objects, findings: slices.Clone(v.findings)}
	t.add(v, v.client)
	t.findings = t.findings.sorted()
	return t
}

func (t *told) add(v *view, client profile) {
	if client.role == ingress {
		t.addIngress(v, client)
	}
	if client.role == sidecar && v.own != nil {
		if host := v.unregistered(client, &t.findings); host != nil {
			t.hosts[routeName(unregisteredPort)] = host
		}
	}
	if v.service == nil {
		return
	}
	s := v.service
	t.seniority = s.seniority
	claims := make(map[binding]claim)
	for i := range s.ports {
		p := &s.ports[i]
		for _, subset := range append([]*networking.Subset{nil}, v.policy.subsets...) {
			c := t.cluster(s, p, subset, &v.policy, client)
			withheld := v.policy.withholds(p.number, subset)
			if withheld {
				withhold(c)
			}
			if why := refused(c); why != "" {
				t.findings.note(v.placeOf(p), "%s: there is no cluster %s", why, c.GetName())
				continue
			}
			t.clusters = append(t.clusters, entryOf(c))
			if c.GetType() == clusterv3.Cluster_EDS {
				a := p.assignment(xds.ChildOf(c), subset, clusterv3.Cluster_EDS, placementOf(client, v.policy.on(p.number, subset)), &t.findings)
				if withheld {
					a.Endpoints = nil
				}
				t.endpoints = append(t.endpoints, entryOf(a))
			}
		}
		if p.unreached {
			continue
		}
		switch client.role {
		case proxyless:
			t.addProxyless(v, p, client)
		case sidecar:
			switch name := routeName(p.number); {
			case p.spoken.http() && p.protocol.http() && !p.late:
				t.hosts[name] = v.virtualHost(p, client, &t.findings)
			case p.spoken.http() && t.hosts[name] == nil: // the listener may be there for it, and needs its routes
				t.hosts[name] = newVirtualHost(place{}, nil, &routev3.VirtualHost{})
			}
			maps.Copy(claims, v.claims(p, client, &t.findings))
		}
	}
	for b, c := range claims {
		t.claims = append(t.claims, claimed{b, c})
	}
	t.claims = slices.Clip(t.claims)
}

// addProxyless adds what a client asks for that dials the service by the port, or, if it is the one that is meant without, by name alone.
func (t *told) addProxyless(v *view, p *port, client profile) {
	s := v.service
	if strings.Contains(s.host, "*") {
		return // nobody can dial that
	}
	body, name := v.grpcRoutes(p, client, &t.findings)
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
