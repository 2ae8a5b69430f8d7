package model

import (
	"strings"
)

// Protocol is how a port is spoken to, as far as Envoy needs to know.
type Protocol int

// The protocols of ports.
const (
	ProtocolTCP Protocol = iota
	ProtocolTLS
	protocolHTTP
	ProtocolHTTP2
)

// HTTP says whether requests of the protocol are routed.
func (p Protocol) HTTP() bool { return p == protocolHTTP || p == ProtocolHTTP2 }

func (p Protocol) String() string { return [...]string{"TCP", "TLS", "HTTP", "HTTP2"}[p] }

// ProtocolOf returns the protocol of a port of a ServiceEntry, and whether it is one that can be served. What Istio
// knows by a name of its own and only passes on is TCP. Envoy has no way from UDP to a cluster that others have.
func ProtocolOf(name string) (p Protocol, ok bool) {
	switch strings.ToLower(name) {
	case "http":
		return protocolHTTP, true
	case "http2", "grpc", "grpc-web":
		return ProtocolHTTP2, true
	case "tls", "https":
		return ProtocolTLS, true
	case "udp":
		return 0, false
	default:
		return ProtocolTCP, true
	}
}

// HTTPProxy is the protocol of a port of a Sidecar that is a forward proxy.
const HTTPProxy = "HTTP_PROXY"
