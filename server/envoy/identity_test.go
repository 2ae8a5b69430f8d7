package envoy

import (
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"

	"tributary/resource"
	"tributary/server/xds"
)

const mutualMesh = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: a, namespace: shop}
spec:
  hosts: [a.example]
  location: MESH_INTERNAL
  ports: [{number: 80, name: http, protocol: HTTP}]
  resolution: STATIC
  endpoints: [{address: 10.0.0.1, serviceAccount: a}, {address: 10.0.0.2}]
`

// When a MUTUAL policy with the files of an identity is deleted, the identity keeps its secrets.
func TestIdentitySecrets_KeptAfterPolicyDeletion(t *testing.T) {
	s := newSteps(Options{}, decoded(t, mutualMesh+`---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: files, namespace: default}
spec:
  host: a.example
  trafficPolicy:
    tls:
      mode: MUTUAL
      clientCertificate: /etc/identity/cert-chain.pem
      privateKey: /etc/identity/key.pem
      caCertificates: /etc/identity/root-cert.pem
`)...)
	stay := see(t, s.c, []*corev3.Node{nodeAs(node("default", "NONE", ""), "/etc/identity")})
	secrets := func() (n int) {
		for range stay.collections[0][xds.SecretURL].All() {
			n++
		}
		return n
	}
	require.Equal(t, 2, secrets())
	s.apply(nil, resource.Key{Kind: resource.DestinationRule, Namespace: "default", Name: "files"})
	require.Equal(t, 2, secrets())
}
