package config_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"tributary/config"
)

func TestListenOverTLS(t *testing.T) {
	c := parsed(t, "/etc/t/tributary.yaml", `
listen:
  xds: off
  xdsTLS: {certificate: tls.crt, key: /run/tls.key, clientCAs: ca.crt}
  admin: unix:///run/tributary/admin.sock?mode=0660&group=ops
  adminTLS: {certificate: a, key: b, minVersion: "1.3"}
configSources: [{address: "fs:///a"}]
`)
	assert.Equal(t, config.Listen{
		XDS: config.ListenOff,
		XDSTLS: &config.SecureListen{Address: ":16012", ServerTLS: config.ServerTLS{
			Certificate: "/etc/t/tls.crt", Key: "/run/tls.key", ClientCAs: "/etc/t/ca.crt", ClientAuth: "require", MinVersion: "1.2",
		}},
		Admin:    "unix:///run/tributary/admin.sock?mode=0660&group=ops",
		AdminTLS: &config.ServerTLS{Certificate: "/etc/t/a", Key: "/etc/t/b", ClientAuth: "none", MinVersion: "1.3"},
	}, c.Listen)
}

// A SPIFFE Workload API can replace the files.
func TestListenWithAWorkloadAPI(t *testing.T) {
	c := parsed(t, "/etc/t/tributary.yaml", `
listen:
  xdsTLS: {certificate: 'spiffe://', clientCAs: 'spiffe://example.org', workloadAPI: 'unix:///run/spire/agent.sock'}
  adminTLS: {certificate: spiffe://example.org/relay, clientCAs: ca.crt}
configSources:
- address: xds://istiod.example:15012
  tlsSettings: {mode: MUTUAL, clientCertificate: 'spiffe://', caCertificates: 'spiffe://', subjectAltNames: ['spiffe://example.org/istiod']}
`)
	assert.Equal(t, config.ServerTLS{
		Certificate: "spiffe://", ClientCAs: "spiffe://example.org", WorkloadAPI: "unix:///run/spire/agent.sock", ClientAuth: "require",
		MinVersion: "1.2",
	}, c.Listen.XDSTLS.ServerTLS)
	assert.Equal(t, &config.ServerTLS{
		Certificate: "spiffe://example.org/relay", ClientCAs: "/etc/t/ca.crt", ClientAuth: "require",
		MinVersion: "1.2",
	}, c.Listen.AdminTLS)
	sourceTLS := c.ConfigSources[0].Settings.(*config.XDS).Source().TLS
	assert.Equal(t, "spiffe://", sourceTLS.ClientCertificate)
	assert.NotNil(t, sourceTLS.WorkloadAPI)
}
