package model

import (
	"strings"
)

// Protocol is the protocol of a port, as far as Envoy distinguishes them.
type Protocol int

// The protocols of ports.
const (
	ProtocolTCP Protocol = iota
	ProtocolTLS
	protocolHTTP
	ProtocolHTTP2
	ProtocolDetected // HTTP or any other, by the first bytes of each connection
)

// HTTP reports whether requests of the protocol are routed.
func (p Protocol) HTTP() bool { return p == protocolHTTP || p == ProtocolHTTP2 }

// Routed reports whether connections of the protocol may have requests that are routed.
func (p Protocol) Routed() bool { return p.HTTP() || p == ProtocolDetected }

func (p Protocol) String() string {
	return [...]string{"TCP", "TLS", "HTTP", "HTTP2", "a detected protocol"}[p]
}

// ProtocolOf returns the protocol of a port of a ServiceEntry, and whether Envoys can serve it. Protocols that Istio
// only passes on are TCP. A missing or unknown name is detected, as in istiod. Envoy cannot send UDP to TCP clusters.
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
	case "tcp", "mongo", "redis", "mysql", "http_proxy":
		return ProtocolTCP, true
	default:
		return ProtocolDetected, true
	}
}

// HTTPProxy is the protocol of a port of a Sidecar that is a forward proxy.
const HTTPProxy = "HTTP_PROXY"
