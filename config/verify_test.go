package config_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/config"
)

func TestVerify(t *testing.T) {
	parse := func(verify string) (*config.Config, error) {
		return config.Parse("t.yaml", []byte("configSources: [{address: 'fs:///x'}]\nverify: "+verify+"\n"))
	}
	cfg, err := parse("[{istiod: 'http://istiod:8080'}, {istiod: 'https://other:8443', every: 30s}]")
	require.NoError(t, err)
	require.Equal(t, []config.Verify{
		{Istiod: "http://istiod:8080", Every: config.Duration(time.Minute)},
		{Istiod: "https://other:8443", Every: config.Duration(30 * time.Second)},
	}, cfg.Verify)
	cfg, err = parse("[{envoy: 'http://envoy:9901'}, {envoy: 'unix:///run/envoy.sock'}]")
	require.NoError(t, err)
	require.Equal(t, "http://envoy:9901", cfg.Verify[0].Envoy)
	for verify, says := range map[string]string{
		"[{istiod: 'istiod:8080'}]":                    "verify[0].istiod: want http://HOST:PORT",
		"[{istiod: 'http://u:p@x'}]":                   "verify[0].istiod: want http://HOST:PORT",
		"[{}]":                                         "verify[0].istiod: want http://HOST:PORT, or envoy: http://HOST:PORT or unix:///PATH",
		"[{envoy: 'envoy:9901'}]":                      "verify[0].envoy: want http://HOST:PORT or unix:///PATH",
		"[{envoy: 'unix://envoy'}]":                    "verify[0].envoy: want http://HOST:PORT or unix:///PATH",
		"[{envoy: 'http://x', istiod: 'http://y'}]":    "verify[0]: want istiod or envoy, and not both",
		"[{istiod: 'http://x', every: 1s}]":            "verify[0].every: want at least 10s, got 1s",
		"[{istiod: 'http://x'}, {istiod: 'http://x'}]": "verify[1].istiod: http://x is there already",
	} {
		_, err := parse(verify)
		require.ErrorContains(t, err, says)
	}
}
