package envoy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// What depends on no host in particular is translated as if it were one, of a name that no host has.
const (
	gatewayUnit   = "~gateways" // the listeners of gateways
	gatewayPrefix = "~gateway/" // with the name of a Gateway: what leads there are the VirtualServices that are bound to it
	portPrefix    = "~port/"    // with a number: the Gateways that want it
)

// isUnit says whether a host is none, but stands for something else.
func isUnit(host string) bool { return strings.HasPrefix(host, "~") }

// gateway is a Gateway.
type gateway struct {
	key     resource.Key
	created time.Time
	version string
	spec    *networking.Gateway
}

// server is a server of a Gateway that a client is to run.
type server struct {
	*networking.Server
	gateway *gateway
	place   place
	kind    serverKind
	bind    string
	route   string // the name of its routes, if it speaks HTTP
}

type serverKind int

const (
	serverHTTP    serverKind = iota // in the clear
	serverHTTPS                     // HTTP within TLS
	serverPass                      // TLS that is passed on by the name that the client asks for
	serverTLS                       // something else within TLS
	serverTCP                       // something else in the clear
	serverUnknown                   // none that can be run
)

func (k serverKind) encrypted() bool { return k == serverHTTPS || k == serverPass || k == serverTLS }

// kindOf says what a server does, or why it cannot.
func kindOf(s *networking.Server) (serverKind, string) {
	tls := s.GetTls()
	protocol := strings.ToUpper(s.GetPort().GetProtocol())
	if s.GetBind() != "" && !resource.IsAddress(s.GetBind()) {
		return serverUnknown, "it can listen on an address only: the server is left out"
	}
	switch protocol {
	case "HTTPS", "TLS":
	case "HTTP", "HTTP2", "GRPC", "GRPC-WEB":
		return serverHTTP, ""
	case "UDP":
		return serverUnknown, "UDP is not served: the server is left out"
	default:
		return serverTCP, ""
	}
	switch tls.GetMode() {
	case networking.ServerTLSSettings_PASSTHROUGH:
		return serverPass, ""
	case networking.ServerTLSSettings_AUTO_PASSTHROUGH:
		return serverUnknown, "AUTO_PASSTHROUGH is for Istio's own networks: the server is left out"
	case networking.ServerTLSSettings_ISTIO_MUTUAL:
		return serverUnknown, "there is nobody who issues Istio's certificates: the server is left out"
	}
	if len(certificates(tls, "")) == 0 {
		return serverUnknown, "it has no certificate: the server is left out"
	}
	if verifies(tls) && authority(tls, "") == "" {
		return serverUnknown, "it has nothing to verify clients by: the server is left out"
	}
	if verifies(tls) && !arePins(tls.GetVerifyCertificateSpki(), tls.GetVerifyCertificateHash()) {
		return serverUnknown, "a hash by which clients are to be verified is none: the server is left out"
	}
	if protocol == "TLS" {
		return serverTLS, ""
	}
	return serverHTTPS, ""
}

// servers returns the servers of the gateways that are for a client, the oldest gateway's first. What is at one address and port is of one sort: the
// first server there decides whether it is in the clear, and then whether it is HTTP.
func (m *mesh) servers(p profile, found *findings) (all []server) {
	labels := p.labelMap()
	var list []*gateway
	for _, g := range m.gateways {
		if selectsLabels(g.spec.GetSelector(), labels) {
			list = append(list, g)
		}
	}
	slices.SortFunc(list, func(a, b *gateway) int { return cmp.Or(a.created.Compare(b.created), a.key.Compare(b.key)) })
	at := make(map[binding]server)
	ports := make(map[uint32]server)
	for _, g := range list {
		for i, spec := range g.spec.GetServers() {
			kind, _ := kindOf(spec)
			s := server{
				Server: spec, gateway: g, place: place{g.key, fmt.Sprintf("spec.servers[%d]", i)}, kind: kind, bind: addressOf(cmp.Or(spec.GetBind(), wildcard)),
			}
			if kind == serverUnknown {
				continue
			}
			port := spec.GetPort().GetNumber()
			first, taken := at[binding{s.bind, port}]
			if taken && (first.kind.encrypted() != kind.encrypted() || !kind.encrypted() && (first.kind != kind || kind == serverTCP)) {
				found.note(s.place, "%s of Gateway %s has %s, and speaks something else there: the server is left out", first.place.field, first.gateway.key.FullName(), hostPort(s.bind, port))
				continue
			}
			if other, used := ports[port]; used && other.bind != s.bind && (other.bind == wildcard || s.bind == wildcard) {
				found.note(s.place, "%s of Gateway %s has %s, so that %s could not be bound: the server is left out",
					other.place.field, other.gateway.key.FullName(), hostPort(other.bind, port), hostPort(s.bind, port))
				continue
			}
			if !taken {
				at[binding{s.bind, port}] = s
			}
			ports[port] = s
			switch kind {
			case serverHTTP:
				s.route = "http." + routeName(port)
			case serverHTTPS:
				s.route = "https." + routeName(port) + "." + spec.GetPort().GetName() + "." + g.key.Name + "." + g.key.Namespace
			}
			if s.route != "" && s.bind != wildcard {
				s.route += "." + s.bind
			}
			all = append(all, s)
		}
	}
	return all
}

func selectsLabels(wanted, labels map[string]string) bool {
	for name, value := range wanted {
		if got, ok := labels[name]; !ok || got != value {
			return false
		}
	}
	return true
}

// admits says whether a server serves a host of a VirtualService in a namespace under a domain: one of both is the domain, and the other one stands for it.
func (s *server) admits(host, domain, namespace string) bool {
	for _, h := range s.GetHosts() {
		of, name, limited := strings.Cut(strings.ToLower(h), "/")
		if !limited {
			name = of
		} else if of != "*" && of != namespace && (of != "." || s.gateway.key.Namespace != namespace) {
			continue
		}
		if host == domain && matches(name, domain) || name == domain && matches(host, domain) {
			return true
		}
	}
	return false
}

// meets says whether a server has a host of a VirtualService in a namespace, or a part of what it stands for.
func (s *server) meets(host, namespace string) bool {
	return s.admits(host, host, namespace) || slices.ContainsFunc(s.names(), func(name string) bool { return s.admits(host, name, namespace) })
}

// serves says whether a server serves a VirtualService that is bound to it under a domain.
func (s *server) serves(r *rule[*networking.VirtualService], domain string) bool {
	return slices.ContainsFunc(r.hosts, func(h string) bool { return s.admits(h, domain, r.key.Namespace) })
}

// redirects says whether a server redirects all requests for a domain.
func (s *server) redirects(domain string) bool {
	return s.route != "" && s.GetTls().GetHttpsRedirect() && slices.Contains(s.names(), domain)
}

// names returns the hosts of a server without the namespaces that they are limited to.
func (s *server) names() (names []string) {
	for _, h := range s.GetHosts() {
		_, name, limited := strings.Cut(strings.ToLower(h), "/")
		if !limited {
			name = strings.ToLower(h)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// gatewaysOf returns the names, with namespaces, of the gateways that an object in a namespace names, but for the one of all sidecars.
func gatewaysOf(names []string, namespace string) (all []string) {
	for _, name := range names {
		switch {
		case name == meshGateway:
		case strings.Contains(name, "/"):
			all = append(all, name)
		default:
			all = append(all, namespace+"/"+name)
		}
	}
	return all
}

// bound says whether a VirtualService is bound to the gateway of a server, and visible there.
func (s *server) bound(r *rule[*networking.VirtualService], p profile) bool {
	return visibleTo(r.exportTo, r.key.Namespace, p.namespace) &&
		slices.Contains(gatewaysOf(r.spec.GetGateways(), r.key.Namespace), s.gateway.key.FullName())
}

func (m *mesh) setGateway(key resource.Key, r *resource.Resource, spec *networking.Gateway, touched map[string]struct{}) {
	touched[gatewayUnit] = struct{}{}
	if old := m.gateways[key]; old != nil {
		m.touchPorts(old, touched)
		m.name(old, -1)
		delete(m.gateways, key)
	}
	if spec != nil {
		g := &gateway{key: key, created: r.Created(), version: r.Version(), spec: spec}
		m.gateways[key] = g
		m.name(g, 1)
		m.touchPorts(g, touched)
	}
}

// name counts the hosts of a Gateway's servers as named once more, or less.
func (m *mesh) name(g *gateway, by int) {
	for name := range g.names() {
		if m.named[name] += by; m.named[name] == 0 {
			delete(m.named, name)
		}
	}
}

// touchPorts adds what depends on a Gateway: what leads to it, and what leads to those that have a port of it, since who has a port depends on all who want it.
func (m *mesh) touchPorts(g *gateway, touched map[string]struct{}) {
	g.touch(touched)
	for _, spec := range g.spec.GetServers() {
		port := spec.GetPort().GetNumber()
		unit := portPrefix + routeName(port)
		if _, known := touched[unit]; known {
			continue // all that were there then were touched, and those that came since have touched themselves
		}
		touched[unit] = struct{}{}
		for _, other := range m.gateways {
			if other.wants(port) {
				other.touch(touched)
			}
		}
	}
}

// touch adds what leads to the Gateway, and the hosts of its servers.
func (g *gateway) touch(touched map[string]struct{}) {
	touched[gatewayPrefix+g.key.FullName()] = struct{}{}
	maps.Copy(touched, g.names())
}

// names returns the hosts of the servers.
func (g *gateway) names() map[string]struct{} {
	names := make(map[string]struct{})
	for _, spec := range g.spec.GetServers() {
		for _, name := range (&server{Server: spec}).names() {
			names[name] = struct{}{}
		}
	}
	return names
}

// wants says whether one of the servers is on a port.
func (g *gateway) wants(port uint32) bool {
	return slices.ContainsFunc(g.spec.GetServers(), func(s *networking.Server) bool { return s.GetPort().GetNumber() == port })
}

// onGateways returns what a domain is to gateways of a profile, or nil: the VirtualServices that have it, the senior first.
func (m *mesh) onGateways(host string, p profile) *view {
	v := &view{host: host, targets: make(map[string]target)}
	if v.servers = m.servers(p, &v.findings); host != gatewayUnit {
		v.findings = nil
	}
	for _, s := range v.servers {
		v.objects = append(v.objects, s.gateway.key)
	}
	if host == gatewayUnit {
		v.seen = m.observation(p, nil)
		v.objects = append(v.objects, v.seen.objects...)
		v.findings = append(v.findings, v.seen.findings...)
	}
	bound := slices.Clone(m.virtuals.exact[gatewayUnit])
	if host != gatewayUnit {
		bound = nil
		for _, r := range m.virtuals.of(host) {
			bound = append(bound, r)
		}
		v.service = m.service(host, p, nil)
		m.applyPolicy(v, p)
	}
	slices.SortFunc(bound, func(a, b *rule[*networking.VirtualService]) int {
		return cmp.Or(a.seniority(p.namespace).compare(b.seniority(p.namespace)), olderRule(a, b))
	})
	for _, r := range slices.Compact(bound) {
		if slices.ContainsFunc(v.servers, func(s server) bool { return s.bound(r, p) && (host == gatewayUnit || s.serves(r, host)) }) {
			v.bound = append(v.bound, m.follow(v, r, p, nil))
		}
	}
	redirects := slices.ContainsFunc(v.servers, func(s server) bool { return s.redirects(host) })
	if v.service == nil && len(v.bound) == 0 && host != gatewayUnit && !redirects {
		return nil
	}
	return v.close(p)
}
