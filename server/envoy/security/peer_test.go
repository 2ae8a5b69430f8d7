package security

import (
	"testing"

	"github.com/stretchr/testify/require"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	securityv1beta1 "istio.io/api/security/v1beta1"

	"tributary/server/envoy/model"
)

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
	objects.Peers = []*model.PeerAuthentication{{Version: "1", Spec: &securityv1beta1.PeerAuthentication{}}}
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
