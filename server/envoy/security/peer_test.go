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
	for port, mode := range ports {
		spec.PortLevelMtls[port] = &securityv1beta1.PeerAuthentication_MutualTLS{Mode: mode}
	}
	return &model.PeerAuthentication{
		Key:     resource.Key{Kind: resource.PeerAuthentication, Namespace: namespace, Name: "p"},
		Created: time.Unix(created, 0), Version: m.String(), Spec: spec,
	}
}

// The oldest object of the narrowest level wins, and inherits unset modes from the next level.
func TestCompose(t *testing.T) {
	empty := map[uint32]mode{}
	for name, c := range map[string]struct {
		peers []*model.PeerAuthentication
		mode  model.MutualTLS
		on    map[uint32]model.MutualTLS
	}{
		"no policy":         {nil, model.Permissive, nil},
		"mesh":              {[]*model.PeerAuthentication{peer("istio-system", 1, strict, nil)}, model.Strict, nil},
		"mesh unset":        {[]*model.PeerAuthentication{peer("istio-system", 1, unset, nil)}, model.Permissive, nil},
		"workloads of mesh": {[]*model.PeerAuthentication{peer("istio-system", 1, strict, empty)}, model.Permissive, nil},
		"namespace": {
			[]*model.PeerAuthentication{peer("istio-system", 1, strict, nil), peer("a", 2, disable, nil)}, model.Disabled, nil,
		},
		"namespace unset": {
			[]*model.PeerAuthentication{peer("istio-system", 1, strict, nil), peer("a", 2, unset, nil)}, model.Strict, nil,
		},
		"the oldest": {
			[]*model.PeerAuthentication{peer("a", 1, permissive, nil), peer("a", 2, strict, nil)}, model.Permissive, nil,
		},
		"workload": {[]*model.PeerAuthentication{peer("a", 1, strict, empty), peer("a", 2, disable, nil)}, model.Strict, nil},
		"ports": {
			[]*model.PeerAuthentication{
				peer("istio-system", 1, strict, nil), peer("a", 2, unset, map[uint32]mode{1: disable, 2: unset, 3: permissive}),
			}, model.Strict, map[uint32]model.MutualTLS{1: model.Disabled, 2: model.Strict, 3: model.Permissive},
		},
		"ports of the oldest": {
			[]*model.PeerAuthentication{peer("a", 1, disable, empty), peer("a", 2, strict, map[uint32]mode{1: strict})},
			model.Disabled, nil,
		},
	} {
		mode, on := Compose(c.peers)
		require.Equal(t, c.mode, mode, name)
		require.Equal(t, c.on, on, name)
	}
}

// Without an identity, connections that require mutual TLS are refused, or accepted in plaintext with Warn. Both give a
// finding.
func TestStrictWithoutIdentity(t *testing.T) {
	objects := Objects{
		Peers:  []*model.PeerAuthentication{peer("a", 1, strict, map[uint32]mode{1: strict, 2: disable})},
		Config: &model.MeshConfig{Spec: &meshv1alpha1.MeshConfig{}},
	}
	security := Translate(objects)
	require.Equal(t, model.Strict, security.Mutual)
	require.Equal(t, map[uint32]model.MutualTLS{1: model.Strict, 2: model.Disabled}, security.MutualByPort)
	require.False(t, security.Plaintext)
	require.Len(t, security.Findings, 1)
	require.Contains(t, security.Findings[0].Why, "refuse")
	require.Equal(t, []resource.Key{objects.Peers[0].Key}, security.Objects)

	objects.Warn = true
	security = Translate(objects)
	require.True(t, security.Plaintext)
	require.Contains(t, security.Findings[0].Why, "plaintext")

	objects.Client.Identity = model.IdentitySPIRE
	security = Translate(objects)
	require.Equal(t, model.Strict, security.Mutual)
	require.False(t, security.Plaintext)
	require.Empty(t, security.Findings)
}

// Settings that differ change the fingerprint.
func TestFingerprintOfPeers(t *testing.T) {
	config := &meshv1alpha1.MeshConfig{}
	objects := Objects{Config: &model.MeshConfig{Spec: config}}
	seen := map[string]string{Translate(objects).From: "no objects"}
	different := func(change string) {
		t.Helper()
		from := Translate(objects).From
		require.Empty(t, seen[from], change)
		seen[from] = change
	}
	objects.Peers = []*model.PeerAuthentication{peer("a", 1, strict, nil)}
	different("an object")
	objects.Peers[0].Version = "2"
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
