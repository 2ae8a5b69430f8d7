package config_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/config"
)

func TestListenOverTLS(t *testing.T) {
	c, err := config.Parse("/etc/t/tributary.yaml", []byte(`
listen:
  xds: off
  xdsTLS: {certificate: tls.crt, key: /run/tls.key, clientCAs: ca.crt}
  admin: unix:///run/tributary/admin.sock?mode=0660&group=ops
  adminTLS: {certificate: a, key: b, minVersion: "1.3"}
configSources: [{address: "fs:///a"}]
`))
	require.NoError(t, err)
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
	c, err := config.Parse("/etc/t/tributary.yaml", []byte(`
listen:
  xdsTLS: {certificate: 'spiffe://', clientCAs: 'spiffe://example.org', workloadAPI: 'unix:///run/spire/agent.sock'}
  adminTLS: {certificate: spiffe://example.org/relay, clientCAs: ca.crt}
configSources:
- address: xds://istiod.example:15012
  tlsSettings: {mode: MUTUAL, clientCertificate: 'spiffe://', caCertificates: 'spiffe://', subjectAltNames: ['spiffe://example.org/istiod']}
`))
	require.NoError(t, err)
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

	_, err = config.Parse("t.yaml",
		[]byte("configSources:\n- address: xds://a:1\n  tlsSettings: {mode: SIMPLE, caCertificates: 'spiffe://'}\n"))
	require.ErrorContains(t, err, "t.yaml:3:16: configSources[0].tlsSettings.subjectAltNames: missing; name the SPIFFE ID of the server")
}

func TestListen_Invalid(t *testing.T) {
	for text, want := range map[string]string{
		"{xds: off}":                   "t.yaml:1:15: listen.xds: it is off, and there is no listen.xdsTLS",
		"{xdsTLS: {key: b}}":           "listen.xdsTLS.certificate: missing; name a file in PEM",
		"{xdsTLS: {certificate: a}}":   "listen.xdsTLS.key: missing; name a file in PEM",
		"{adminTLS: {certificate: a}}": "listen.adminTLS.key: missing; name a file in PEM",
		"{xdsTLS: {certificate: a, key: b, clientAuth: require}}":            "listen.xdsTLS.clientAuth: require needs clientCAs",
		"{xdsTLS: {certificate: a, key: b, clientAuth: none, clientCAs: c}}": "listen.xdsTLS.clientAuth: none asks for no certificates",
		"{xdsTLS: {certificate: a, key: b, clientAuth: always, clientCAs: " +
			"c}}": `listen.xdsTLS.clientAuth: want none, optional or require, got "always"`,
		`{xdsTLS: {certificate: a, key: b, minVersion: "1.1"}}`: `listen.xdsTLS.minVersion: want 1.2 or 1.3, got "1.1"`,
		"{xdsTLS: {address: ':16010', certificate: a, key: b}}": "listen.xdsTLS.address: :16010 is also that of " +
			"127.0.0.1:16010, which is listen.xds",
		"{xdsTLS: {address: '127.0.0.1:16014', certificate: a, key: b}}": "listen.admin: 127.0.0.1:16014 is also listen.xdsTLS.address",
		"{xdsTLS: {certificate: 'spiffe://', key: b}}":                   "t.yaml:1:50: listen.xdsTLS.key: the Workload API gives the key",
		"{xdsTLS: {certificate: " +
			"'spiffe://a'}}": `t.yaml:1:32: listen.xdsTLS.certificate: "spiffe://a" is a trust domain`,
		"{xdsTLS: {certificate: a, key: 'spiffe://'}}": "listen.xdsTLS.key: want a file in PEM",
		"{xdsTLS: {certificate: a, key: b, clientCAs: " +
			"'spiffe://a/b'}}": `listen.xdsTLS.clientCAs: "spiffe://a/b" is an identity; a trust domain is spiffe://a`,
		"{adminTLS: {certificate: 'spiffe://', workloadAPI: " +
			"/run/agent.sock}}": `listen.adminTLS.workloadAPI: want unix:///PATH or tcp://IP:PORT, got "/run/agent.sock"`,
		"{xdsTLS: {certificate: a, key: b, workloadAPI: 'unix:///a'}}": "listen.xdsTLS.workloadAPI: nothing is asked of it: write " +
			"certificate: spiffe://, clientCAs: spiffe://, or both",
		"{xds: 'unix:///a', admin: 'unix:///a'}": "listen.admin: unix:///a is also listen.xds",
		"{xds: 'unix://a'}":                      "listen.xds: want unix:///PATH with three slashes",
	} {
		_, err := config.Parse("t.yaml", []byte("listen: "+text+"\nconfigSources: [{address: \"fs:///a\"}]\n"))
		require.ErrorContains(t, err, want, text)
	}
}
