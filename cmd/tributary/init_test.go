package main

import (
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/cmd/internal/check"
	"tributary/config"
)

// TestInit_Registries has all registries, one of which does not answer. The rest of init is in init.txtar.
func TestInit_Registries(t *testing.T) {
	registries := check.Registries()
	var want []string
	for i, registry := range registries {
		listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is on this machine
		require.NoError(t, err)
		address := listener.Addr().String()
		_, registries[i].Port, _ = net.SplitHostPort(address)
		if registry.Name == "eureka" {
			require.NoError(t, listener.Close())
			continue
		}
		defer listener.Close() //nolint:errcheck // no client comes
		want = append(want, registry.Name+" "+fmt.Sprintf(registry.Address, address))
	}
	path := t.TempDir() + "/tributary.yaml"
	command := initOf(registries)
	command.SetArgs([]string{path})
	command.SetOut(io.Discard)
	require.NoError(t, command.ExecuteContext(t.Context()))
	cfg, err := config.Load(path)
	require.NoError(t, err)
	var sources []string
	for _, source := range cfg.ConfigSources {
		sources = append(sources, source.Name+" "+source.Shown())
	}
	assert.Equal(t, want, sources)
	for _, registry := range registries { // each by itself is right
		registry.Address = "x"
		assert.Contains(t, check.InitialConfig(nil, []check.Registry{registry}), registry.Description)
	}
}
