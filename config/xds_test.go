package config_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"tributary/config"
	"tributary/sources/xds"
)

func TestXDSSettings(t *testing.T) {
	c := parsed(t, "/etc/tributary/t.yaml", `
configSources:
- address: xds://istiod.example:15012,b.example:15012
  tlsSettings:
    mode: MUTUAL
    caCertificates: |
      -----BEGIN CERTIFICATE-----
    clientCertificate: certs/cert.pem
    privateKey: /certs/key.pem
    subjectAltNames: [spiffe://cluster.local/ns/istio-system/sa/istiod]
    sni: istiod
  subscribedResources: [SERVICE_REGISTRY]
  mode: delta
  tokenFile: token
  nodeID: me
  nodeMetadata: {NAMESPACES: a}
  revision: blue
  locality: r/z/s
  maxMessageBytes: 5
`)
	assert.Equal(t, "istiod.example-15012-b.example-15012", c.ConfigSources[0].Name)
	assert.Equal(t, xds.Settings{
		Mode: "delta", SubscribedResources: []string{"SERVICE_REGISTRY"}, TokenFile: "/etc/tributary/token",
		NodeID: "me", NodeMetadata: map[string]string{"NAMESPACES": "a"}, Revision: "blue", Locality: "r/z/s",
		MaxMessageBytes: 5,
		TLS: &xds.TLS{
			Mode: "MUTUAL", CACertificates: "-----BEGIN CERTIFICATE-----\n", ClientCertificate: "/etc/tributary/certs/cert.pem",
			PrivateKey: "/certs/key.pem", SNI: "istiod", SubjectAltNames: []string{"spiffe://cluster.local/ns/istio-system/sa/istiod"},
		},
	}, c.ConfigSources[0].Settings.(*config.XDS).Source())
}
