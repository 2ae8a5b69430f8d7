package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/cmd/internal/check"
	"tributary/config"
)

func TestInit(t *testing.T) {
	noRegistries := []check.Registry{}
	initialized := func(path string, registries []check.Registry) (code int, output string) {
		cmd := initOf(registries)
		var buffer bytes.Buffer
		cmd.SetArgs([]string{path})
		cmd.SetOut(&buffer)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		return exitCode(cmd.ExecuteContext(t.Context()), cmd, &buffer), buffer.String()
	}
	valid := func(path string) (sources []string) {
		got := command(t, "validate", "--strict", path)
		assert.Zero(t, got.code, got.stdout+got.stderr)
		cfg, err := config.Load(path)
		require.NoError(t, err)
		for _, s := range cfg.ConfigSources {
			sources = append(sources, s.Name+" "+s.Shown())
		}
		return sources
	}

	// Directories with objects, and one that has none.
	dir := t.TempDir()
	write(t, dir+"/rules/a.yaml", entry("a", 80)+"---\n"+entry("b", 80))
	write(t, dir+"/more: \"rules\"/deep/a.yaml", entry("c", 80))
	write(t, dir+"/other/mesh.yaml", "configSources: []\n")
	write(t, dir+"/other/deployment.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n")
	code, said := initialized(dir+"/tributary.yaml", noRegistries)
	require.Zero(t, code, said)
	assert.Equal(t, dir+"/tributary.yaml is written, with 2 places of files and 0 registries\nnext: tributary doctor -c "+dir+
		"/tributary.yaml\n", said)
	assert.Len(t, valid(dir+"/tributary.yaml"), 2)

	// Files of the Gateway API are read with derive.
	gateways := t.TempDir()
	write(t, gateways+"/edge/gateway.yaml", "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\n"+
		"metadata: {name: public, namespace: edge}\n"+
		"spec: {gatewayClassName: istio, listeners: [{name: http, port: 8080, protocol: HTTP}]}\n")
	code, said = initialized(gateways+"/tributary.yaml", noRegistries)
	require.Zero(t, code, said)
	cfg, err := config.Load(gateways + "/tributary.yaml")
	require.NoError(t, err)
	written, err := os.ReadFile(gateways + "/tributary.yaml")
	require.NoError(t, err)
	assert.Contains(t, string(written), "derive: {}  # makes")
	assert.Len(t, cfg.ConfigSources, 1)

	// It is never written over.
	before, err := os.ReadFile(dir + "/tributary.yaml")
	require.NoError(t, err)
	code, said = initialized(dir+"/tributary.yaml", noRegistries)
	assert.Equal(t, 1, code)
	assert.Contains(t, said, "is there already, and is left as it is")
	after, err := os.ReadFile(dir + "/tributary.yaml")
	require.NoError(t, err)
	assert.Equal(t, before, after)
	require.NoError(t, os.Symlink(dir+"/nothing", dir+"/link.yaml"))
	code, _ = initialized(dir+"/link.yaml", noRegistries)
	assert.Equal(t, 1, code)

	// The configuration stands among the objects.
	dir = t.TempDir()
	write(t, dir+"/a.yaml", entry("a", 80))
	write(t, dir+"/a.json", "[]")
	write(t, dir+"/a/b.yaml", entry("b", 80))
	code, said = initialized(dir+"/tributary.yaml", noRegistries)
	require.Zero(t, code, said)
	assert.Len(t, valid(dir+"/tributary.yaml"), 2)

	// All registries, some of which answer, and no files.
	dir = t.TempDir()
	registries := check.Registries()
	var want []string
	for i := range registries {
		listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is on this machine
		require.NoError(t, err)
		_, registries[i].Port, _ = net.SplitHostPort(listener.Addr().String())
		if registries[i].Name == "eureka" {
			require.NoError(t, listener.Close())
		} else {
			defer listener.Close() //nolint:errcheck // nobody came
			address := fmt.Sprintf(registries[i].Address, "127.0.0.1:"+registries[i].Port)
			want = append(want, registries[i].Name+" "+address)
		}
	}
	code, said = initialized(dir+"/tributary.yaml", registries)
	require.Zero(t, code, said)
	assert.Equal(t, want, valid(dir+"/tributary.yaml"))
	for _, r := range registries { // each by itself is right
		text := check.InitialConfig(nil, []check.Registry{{Name: r.Name, Address: "x", Description: r.Description}})
		assert.Contains(t, text, r.Description)
	}

	// No registry and no file.
	dir = t.TempDir()
	code, said = initialized(dir+"/tributary.yaml", noRegistries)
	require.Zero(t, code, said)
	cfg, err = config.Load(dir + "/tributary.yaml")
	require.NoError(t, err)
	assert.Len(t, cfg.ConfigSources, 1)
	assert.DirExists(t, dir+"/rules")
}
