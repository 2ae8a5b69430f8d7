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
	cfg := parsed(t, "/etc/tributary/t.yaml", `configSources:
- address: consul-kv+https://consul.example:8501/mesh/prod?dc=dc2
  tokenFile: token
  tlsSettings: {mode: SIMPLE, caCertificates: ca.pem}
  defaultNamespace: shop
  unknownFields: warn
  wait: 1m
`)
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
