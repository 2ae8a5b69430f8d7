package translate

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"tributary/server/envoy/model"
)

// inboundMutual returns the TLS settings of inbound connections that authenticate both sides, or nil for a client without an identity.
// protocols are those of ALPN.
func inboundMutual(client model.Profile, protocols ...string) *corev3.TransportSocket {
	return nil
}
