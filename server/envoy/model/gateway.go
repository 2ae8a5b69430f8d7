package model

import (
	"maps"
	"slices"
	"strings"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// Pseudo-hosts stand for resources that belong to no host in particular. Their names are not valid for hosts.
const (
	GatewayPseudoHost = "~gateways" // the listeners of gateways
	// with the name of a Gateway: the destination of the VirtualServices that are bound to it
	GatewayPrefix = "~gateway/"
	PortPrefix    = "~port/" // with a number: the Gateways with servers on the port
)

// IsPseudoHost reports whether a name stands for resources that belong to no host.
func IsPseudoHost(host string) bool { return strings.HasPrefix(host, "~") }

// Gateway is a Gateway.
type Gateway struct {
	Key     resource.Key
	Created time.Time
	Version string
	Derived bool   // Of an object of Gateway API.
	Parents string // The origins of a derived Gateway, see resource.DerivedFrom.
	Spec    *networking.Gateway
}

// Server is a server of a Gateway that a client runs.
type Server struct {
	*networking.Server
	Gateway *Gateway
	Place   Place
	Kind    serverKind
	Bind    string
	Route   string    // the name of its routes, if it speaks HTTP
	Denial  *Security // denies all traffic if the client does not enforce the policies of its Gateway; else nil
}

type serverKind int

// The kinds of servers.
const (
	ServerHTTP    serverKind = iota // in the clear
	ServerHTTPS                     // HTTP within TLS
	ServerPass                      // TLS that is passed on by its server name
	ServerTLS                       // something else within TLS
	ServerTCP                       // something else in the clear
	ServerUnknown                   // not supported
)

func (k serverKind) Encrypted() bool { return k == ServerHTTPS || k == ServerPass || k == ServerTLS }

// KindOf returns the kind of a server, or the reason why it is not supported.
func KindOf(server *networking.Server) (serverKind, string) {
	tls := server.GetTls()
	protocol := strings.ToUpper(server.GetPort().GetProtocol())
	if server.GetBind() != "" && !resource.IsAddress(server.GetBind()) {
		return ServerUnknown, "it can listen on an address only: the server is left out"
	}
	switch protocol {
	case "HTTPS", "TLS":
	case "HTTP", "HTTP2", "GRPC", "GRPC-WEB":
		return ServerHTTP, ""
	case "UDP":
		return ServerUnknown, "UDP is not served: the server is left out"
	default:
		if tls == nil {
			return ServerTCP, ""
		}
		protocol = "TLS" // as with istiod
	}
	switch tls.GetMode() {
	case networking.ServerTLSSettings_SIMPLE, networking.ServerTLSSettings_MUTUAL,
		networking.ServerTLSSettings_OPTIONAL_MUTUAL:
	case networking.ServerTLSSettings_PASSTHROUGH:
		return ServerPass, ""
	case networking.ServerTLSSettings_AUTO_PASSTHROUGH:
		return ServerUnknown, "AUTO_PASSTHROUGH is for Istio's own networks: the server is left out"
	case networking.ServerTLSSettings_ISTIO_MUTUAL:
		if tls.GetCaCrl() != "" {
			return ServerUnknown, "with ISTIO_MUTUAL, revocations are not checked: the server is left out"
		}
		return encryptedKind(protocol), ""
	default:
		return ServerUnknown, "its mode is unknown: the server is left out"
	}
	if len(Certificates(tls, "")) == 0 {
		return ServerUnknown, "it has no certificate: the server is left out"
	}
	if Verifies(tls) && Authority(tls, "") == "" {
		return ServerUnknown, "it has no authority to verify clients: the server is left out"
	}
	if Verifies(tls) && !arePins(tls.GetVerifyCertificateSpki(), tls.GetVerifyCertificateHash()) {
		return ServerUnknown, "a hash to verify clients is no SHA-256 hash: the server is left out"
	}
	return encryptedKind(protocol), ""
}

// encryptedKind is the kind of a server that terminates TLS.
func encryptedKind(protocol string) serverKind {
	if protocol == "TLS" {
		return ServerTLS
	}
	return ServerHTTPS
}

// NeedsIdentity reports whether a server can run only on a client with an identity.
func (s *Server) NeedsIdentity() bool {
	return s.GetTls().GetMode() == networking.ServerTLSSettings_ISTIO_MUTUAL
}

// SelectsLabels reports whether labels contain all wanted ones.
func SelectsLabels(wanted, labels map[string]string) bool {
	for name, value := range wanted {
		if got, ok := labels[name]; !ok || got != value {
			return false
		}
	}
	return true
}

// admits reports whether a server serves a host of a VirtualService in a namespace under a domain: one of server and
// VirtualService names the domain, and the other matches it.
func (s *Server) admits(host, domain, namespace string) bool {
	for _, h := range s.GetHosts() {
		limit, name, limited := strings.Cut(strings.ToLower(h), "/")
		if !limited {
			name = limit
		} else if limit != "*" && limit != namespace && (limit != "." || s.Gateway.Key.Namespace != namespace) {
			continue
		}
		if host == domain && Matches(name, domain) || name == domain && Matches(host, domain) {
			return true
		}
	}
	return false
}

// Meets reports whether the hosts of a server overlap with a host of a VirtualService in a namespace.
func (s *Server) Meets(host, namespace string) bool {
	return s.admits(host, host, namespace) ||
		slices.ContainsFunc(s.Names(), func(name string) bool { return s.admits(host, name, namespace) })
}

// Serves reports whether a server serves a VirtualService that is bound to it under a domain.
func (s *Server) Serves(virtualService *VirtualService, domain string) bool {
	return slices.ContainsFunc(virtualService.Hosts,
		func(host string) bool { return s.admits(host, domain, virtualService.Key.Namespace) })
}

// Redirects reports whether a server redirects all requests for a domain.
func (s *Server) Redirects(domain string) bool {
	return s.Route != "" && s.GetTls().GetHttpsRedirect() && slices.Contains(s.Names(), domain)
}

// Names returns the hosts of a server without the namespaces that they are limited to.
func (s *Server) Names() (names []string) {
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

// Bound reports whether a VirtualService is bound to the gateway of a server, and visible there.
func (s *Server) Bound(virtualService *VirtualService, p Profile) bool {
	return VisibleTo(virtualService.ExportTo, virtualService.Key.Namespace, p.Namespace) &&
		slices.Contains(virtualService.WholeGateways(virtualService.Spec.GetGateways()), s.Gateway.Key.FullName())
}

// Touch adds the pseudo-host of the Gateway, and the hosts of its servers.
func (g *Gateway) Touch(touched map[string]bool) {
	touched[GatewayPrefix+g.Key.FullName()] = true
	maps.Copy(touched, g.Names())
}

// Names returns the hosts of the servers.
func (g *Gateway) Names() map[string]bool {
	names := make(map[string]bool)
	for _, spec := range g.Spec.GetServers() {
		for _, name := range (&Server{Server: spec}).Names() {
			names[name] = true
		}
	}
	return names
}

// HasPort reports whether one of the servers is on a port.
func (g *Gateway) HasPort(port uint32) bool {
	return slices.ContainsFunc(g.Spec.GetServers(),
		func(s *networking.Server) bool { return s.GetPort().GetNumber() == port })
}

// Binding is the address and port of a listener. Services claim the connections to it.
type Binding struct {
	Address string
	Port    uint32
}

// Addresses that listeners bind.
const (
	Wildcard  = "0.0.0.0"
	Localhost = "127.0.0.1"

	OutboundCapturePort = 15001 // the target of redirected outbound connections
)
