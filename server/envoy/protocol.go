package envoy

import "strings"

// protocol is how a port is spoken to, as far as Envoy is told about it.
type protocol int

const (
	protocolTCP protocol = iota
	protocolTLS
	protocolHTTP
	protocolHTTP2
)

func (p protocol) http() bool { return p == protocolHTTP || p == protocolHTTP2 }

func (p protocol) String() string { return [...]string{"TCP", "TLS", "HTTP", "HTTP2"}[p] }

// protocolOf returns the protocol of a port of a ServiceEntry, and whether it is one that can be served. What Istio
// knows by a name of its own and only passes on is TCP. Envoy has no way from UDP to a cluster that others have.
func protocolOf(name string) (p protocol, ok bool) {
	switch strings.ToLower(name) {
	case "http":
		return protocolHTTP, true
	case "http2", "grpc", "grpc-web":
		return protocolHTTP2, true
	case "tls", "https":
		return protocolTLS, true
	case "udp":
		return 0, false
	default:
		return protocolTCP, true
	}
}
