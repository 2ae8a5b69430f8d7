package envoytest

import (
	securityv1beta1 "istio.io/api/security/v1beta1"
	typev1beta1 "istio.io/api/type/v1beta1"
)

// peers makes a PeerAuthentication of a namespace or of some workloads.
func (m *Mesh) peers() *securityv1beta1.PeerAuthentication {
	mode := func() *securityv1beta1.PeerAuthentication_MutualTLS {
		return &securityv1beta1.PeerAuthentication_MutualTLS{
			Mode: securityv1beta1.PeerAuthentication_MutualTLS_Mode(m.rand.IntN(4)), //nolint:gosec // there are four
		}
	}
	policy := &securityv1beta1.PeerAuthentication{}
	if m.one(2) {
		policy.Mtls = mode()
	}
	if m.one(2) {
		policy.Selector = &typev1beta1.WorkloadSelector{MatchLabels: map[string]string{"app": m.pick("one", "two")}}
		policy.PortLevelMtls = map[uint32]*securityv1beta1.PeerAuthentication_MutualTLS{80: mode(), 8001: mode()}
	}
	return policy
}
