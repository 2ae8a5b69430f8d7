package config_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/config"
	"tributary/sources/xds"
)

func TestXDSSettings(t *testing.T) {
	c, err := config.Parse("/etc/tributary/t.yaml", []byte(`
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
`))
	require.NoError(t, err)
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

func TestXDSSettings_Invalid(t *testing.T) {
	_, err := config.Parse("t.yaml", []byte(`
configSources:
- {address: "xds://a:1", name: a, tlsSettings: {mode: ISTIO_MUTUAL}}
- {address: "xds://a", name: b}
- {address: "xds://a:1", name: c, quietDelay: 5s, nodeMetadata: {a: 5, b: x, b: y}}
- {address: "fs:///d", name: d, mode: sotw}
- {address: "xds://a:1", name: e, cacheDir: /c}
`))
	var e *config.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, []string{
		"t.yaml:3:55: configSources[0].tlsSettings.mode: ISTIO_MUTUAL takes certificates from an Istio agent, which is not here; " +
			"write MUTUAL, with the files in clientCertificate, privateKey and caCertificates",
		`t.yaml:4:13: configSources[1].address: "xds://a": want host:port, got "a"`,
		"t.yaml:5:35: configSources[2].quietDelay: not for xds addresses, but for fs; known here: address, guard, locality, " +
			"maxMessageBytes, merge, mode, name, nodeID, nodeMetadata, partialStart, precedence, required, resync, revision, subscribedResources, " +
			"tlsSettings, tokenFile, transform, validation",
		"t.yaml:5:69: configSources[2].nodeMetadata.a: want a string, got 5; put it in quotes",
		"t.yaml:5:78: configSources[2].nodeMetadata.b: given twice",
		"t.yaml:6:33: configSources[3].mode: not for fs addresses, but for xds; known here: address, defaultNamespace, derive, domainSuffix, " +
			"emptyGrace, followLinks, foreignKinds, guard, maxDelay, maxFileBytes, merge, name, partialStart, precedence, quietDelay, required, " +
			"rescanInterval, transform, unknownFields, validation",
		"t.yaml:7:35: configSources[4].cacheDir: removed: set stateDir, the directory of the last good state: " +
			"a restart resumes from it",
	}, strings.Split(e.Error(), "\n"))
}
