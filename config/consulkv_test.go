package config_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/config"
	"tributary/sources"
	"tributary/sources/consul/dial"
	"tributary/sources/consulkv"
)

func TestConsulKV(t *testing.T) {
	cfg, err := config.Parse("/etc/tributary/t.yaml", []byte(`configSources:
- address: consul-kv+https://consul.example:8501/mesh/prod?dc=dc2
  tokenFile: token
  tlsSettings: {mode: SIMPLE, caCertificates: ca.pem}
  defaultNamespace: shop
  unknownFields: warn
  wait: 1m
`))
	require.NoError(t, err)
	s := cfg.ConfigSources[0]
	require.Equal(t, "prod", s.Name)
	settings := s.Settings.(*config.ConsulKV).Source()
	require.Equal(t, "/etc/tributary/ca.pem", settings.TLS.CACertificates)
	settings.TLS = nil
	require.Equal(t, consulkv.Settings{
		Settings: dial.Settings{TokenFile: "/etc/tributary/token"}, Texts: sources.Texts{DefaultNamespace: "shop", UnknownFields: "warn"},
		Wait: time.Minute,
	}, settings)
}

func TestConsulKVFaults(t *testing.T) {
	_, err := config.Parse("t.yaml", []byte(`configSources:
- address: consul-kv://consul.example:8500
- address: consul-kv://consul.example/mesh
- address: consul-kv://consul.example:8500/mesh
  hostTemplate: x
  mode: delta
  quietDelay: 1s
  subscribedResources: [SERVICE_REGISTRY]
- address: consul-kv://consul.example:8500/mesh
  wait: 1ms
`))
	for _, want := range []string{
		`t.yaml:2:12: configSources[0].address: "consul-kv://consul.example:8500": the prefix of the keys is missing; want ` +
			`consul-kv://host:port/prefix`,
		`t.yaml:3:12: configSources[1].address: "consul-kv://consul.example/mesh": want host:port, got "consul.example"`,
		`t.yaml:5:3: configSources[2].hostTemplate: not for consul-kv addresses`,
		`t.yaml:6:3: configSources[2].mode: not for consul-kv addresses`,
		`t.yaml:7:3: configSources[2].quietDelay: not for consul-kv addresses`,
		`t.yaml:8:3: configSources[2].subscribedResources: not for consul-kv addresses`,
		`t.yaml:10:9: configSources[3].wait: want 1s to 10m0s, got 1ms`,
	} {
		require.ErrorContains(t, err, want)
	}
}
