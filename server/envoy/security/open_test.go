package security_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	securityv1beta1 "istio.io/api/security/v1beta1"

	"tributary/resource"
	"tributary/server/envoy/model"
	"tributary/server/envoy/security"
)

// A mode of mutual TLS of a newer version accepts no plaintext.
func TestUnknownMode_IsStrict(t *testing.T) {
	newer := &securityv1beta1.PeerAuthentication_MutualTLS{Mode: 17}
	spec := &securityv1beta1.PeerAuthentication{Mtls: newer}
	mode, _ := security.Compose([]*model.PeerAuthentication{{
		Key: resource.Key{Kind: resource.PeerAuthentication, Namespace: "a", Name: "p"}, Spec: spec,
	}})
	require.Equal(t, model.Strict, mode)
	require.True(t, security.IsStrict(spec))
	require.True(t, security.IsStrict(&securityv1beta1.PeerAuthentication{
		PortLevelMtls: map[uint32]*securityv1beta1.PeerAuthentication_MutualTLS{80: newer},
	}))
}
