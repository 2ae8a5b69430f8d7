package security

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	securityv1beta1 "istio.io/api/security/v1beta1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"tributary/resource"
	"tributary/server/envoy/model"
)

const (
	unset      = securityv1beta1.PeerAuthentication_MutualTLS_UNSET
	strict     = securityv1beta1.PeerAuthentication_MutualTLS_STRICT
	permissive = securityv1beta1.PeerAuthentication_MutualTLS_PERMISSIVE
	disable    = securityv1beta1.PeerAuthentication_MutualTLS_DISABLE
)

type mode = securityv1beta1.PeerAuthentication_MutualTLS_Mode

// peer is a PeerAuthentication; with ports, it is of a workload.
func peer(namespace string, created int64, m mode, ports map[uint32]mode) *model.PeerAuthentication {
	spec := &securityv1beta1.PeerAuthentication{Mtls: &securityv1beta1.PeerAuthentication_MutualTLS{Mode: m}}
	if ports != nil {
		spec.Selector = &typev1beta1.WorkloadSelector{MatchLabels: map[string]string{"app": "a"}}
		spec.PortLevelMtls = make(map[uint32]*securityv1beta1.PeerAuthentication_MutualTLS)
	}
	for port, of := range ports {
		spec.PortLevelMtls[port] = &securityv1beta1.PeerAuthentication_MutualTLS{Mode: of}
	}
	return &model.PeerAuthentication{
		Key:     resource.Key{Kind: resource.PeerAuthentication, Namespace: namespace, Name: "p"},
		Created: time.Unix(created, 0), Version: m.String(), Spec: spec,
	}
}

// The narrowest level counts, the oldest object of a level, and what is unset is as the next level has it.
func TestCompose(t *testing.T) {
	none := map[uint32]mode{}
	for name, c := range map[string]struct {
		peers []*model.PeerAuthentication
		mode  model.MutualTLS
		on    map[uint32]model.MutualTLS
	}{
		"nothing":           {nil, model.Permissive, nil},
		"mesh":              {[]*model.PeerAuthentication{peer("istio-system", 1, strict, nil)}, model.Strict, nil},
		"mesh unset":        {[]*model.PeerAuthentication{peer("istio-system", 1, unset, nil)}, model.Permissive, nil},
		"workloads of mesh": {[]*model.PeerAuthentication{peer("istio-system", 1, strict, none)}, model.Permissive, nil},
		"namespace": {
			[]*model.PeerAuthentication{peer("istio-system", 1, strict, nil), peer("a", 2, disable, nil)}, model.Disabled, nil,
		},
		"namespace unset": {
			[]*model.PeerAuthentication{peer("istio-system", 1, strict, nil), peer("a", 2, unset, nil)}, model.Strict, nil,
		},
		"the oldest": {
			[]*model.PeerAuthentication{peer("a", 1, permissive, nil), peer("a", 2, strict, nil)}, model.Permissive, nil,
		},
		"workload": {[]*model.PeerAuthentication{peer("a", 1, strict, none), peer("a", 2, disable, nil)}, model.Strict, nil},
		"ports": {
			[]*model.PeerAuthentication{
				peer("istio-system", 1, strict, nil), peer("a", 2, unset, map[uint32]mode{1: disable, 2: unset, 3: permissive}),
			}, model.Strict, map[uint32]model.MutualTLS{1: model.Disabled, 2: model.Strict, 3: model.Permissive},
		},
		"ports of the oldest": {
			[]*model.PeerAuthentication{peer("a", 1, disable, none), peer("a", 2, strict, map[uint32]mode{1: strict})}, model.Disabled, nil,
		},
	} {
		mode, on := Compose(c.peers)
		require.Equal(t, c.mode, mode, name)
		require.Equal(t, c.on, on, name)
	}
}

// Without an identity, what must come by mutual TLS is refused, or accepted in plaintext if that is allowed; both is said.
func TestStrictWithoutIdentity(t *testing.T) {
	all := Objects{
		Peers:  []*model.PeerAuthentication{peer("a", 1, strict, map[uint32]mode{1: strict, 2: disable})},
		Config: &model.MeshConfig{Spec: &meshv1alpha1.MeshConfig{}},
	}
	s := Of(all)
	require.Equal(t, model.Strict, s.Mutual)
	require.Equal(t, map[uint32]model.MutualTLS{1: model.Strict, 2: model.Disabled}, s.MutualByPort)
	require.False(t, s.Plaintext)
	require.Len(t, s.Findings, 1)
	require.Contains(t, s.Findings[0].Why, "refuse")
	require.Equal(t, []resource.Key{all.Peers[0].Key}, s.Objects)

	all.Warn = true
	s = Of(all)
	require.True(t, s.Plaintext)
	require.Contains(t, s.Findings[0].Why, "plaintext")

	all.Client.Identity = model.IdentitySPIRE
	s = Of(all)
	require.Equal(t, model.Strict, s.Mutual)
	require.False(t, s.Plaintext)
	require.Empty(t, s.Findings)
}

// What differs is not equal, so that listeners are made again.
func TestPeersAreTold(t *testing.T) {
	config := &meshv1alpha1.MeshConfig{}
	all := Objects{Config: &model.MeshConfig{Spec: config}}
	seen := map[string]string{Of(all).From: "nothing"}
	different := func(what string) {
		t.Helper()
		from := Of(all).From
		require.Empty(t, seen[from], what)
		seen[from] = what
	}
	all.Peers = []*model.PeerAuthentication{peer("a", 1, strict, nil)}
	different("an object")
	all.Peers[0].Version = "2"
	different("its version")
	config.TrustDomain = "example.org"
	different("the trust domain")
	config.TrustDomainAliases = []string{"old.example"}
	different("its aliases")
	config.MeshMTLS = &meshv1alpha1.MeshConfig_TLSConfig{MinProtocolVersion: meshv1alpha1.MeshConfig_TLSConfig_TLSV1_3}
	different("the version of TLS")
	config.MeshMTLS.CipherSuites = []string{"AES128-SHA"}
	different("ciphers")
}
