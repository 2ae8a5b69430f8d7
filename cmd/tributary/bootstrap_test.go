package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestBootstrap(t *testing.T) {
	got := command(t, "bootstrap", "istiod", "--server", "mesh.example:16010")
	assert.Zero(t, got.code)
	assert.Contains(t, got.stdout, "- address: \"xds://mesh.example:16010\"\n")
	assert.Contains(t, got.stdout, "- address: k8s://\n")
	assert.Contains(t, got.stderr, "mesh configuration of istiod")
	got = command(t, "bootstrap", "envoy")
	assert.Contains(t, got.stdout, `"INTERCEPTION_MODE":"NONE"`, "istiod takes REDIRECT by default")
	got = command(t, "bootstrap", "envoy", "--metadata", "INTERCEPTION_MODE=TPROXY")
	assert.Contains(t, got.stdout, `"INTERCEPTION_MODE":"TPROXY"`)
	got = command(t, "bootstrap", "grpc", "--node-id", "n1")
	assert.Contains(t, got.stdout, `"server_uri": "127.0.0.1:16010"`)
	assert.Contains(t, got.stdout, `"node": {"id": "n1"}`)

	got = command(t, "bootstrap", "envoy", "--node-id", "n1", "--namespace", "shop", "--interception", "REDIRECT", "--admin", "[::1]:15000",
		"--metadata", "A=b")
	assert.Contains(t, got.stdout, `"INTERCEPTION_MODE":"REDIRECT","NAMESPACE":"shop"`)
	assert.Contains(t, got.stdout, `"A":"b"`)
	assert.Contains(t, got.stdout, `admin:
  address: {socket_address: {address: "::1", port_value: 15000}}`)
	assert.Contains(t, got.stderr, "127.0.0.1:<service port>")
	assert.Contains(t, command(t, "bootstrap", "envoy", "--interception", "redirect").stderr, "known: NONE, REDIRECT, TPROXY")
	assert.Contains(t, command(t, "bootstrap", "envoy", "--admin", "9901").stderr, "want host:port")
	assert.Contains(t, command(t, "bootstrap", "istiod", "--namespace", "shop").stderr, "--namespace is for envoy and grpc")

	got = command(t, "bootstrap", "envoy", "--spire", "unix:///run/spire/agent.sock", "--metadata", "A=b")
	assert.Contains(t, got.stdout, `"A":"b","IDENTITY":"spire"`)
	assert.Contains(t, got.stdout, `  - name: spire_agent`)
	assert.Contains(t, got.stdout, `{pipe: {path: "/run/spire/agent.sock"}}`)
	got = command(t, "bootstrap", "envoy", "--identity-dir", "/etc/identity")
	assert.Contains(t, got.stdout, `"IDENTITY":"/etc/identity"`)
	assert.NotContains(t, got.stdout, `spire_agent`)
	for why, flags := range map[string][]string{
		"not from both":      {"envoy", "--spire", "/a", "--identity-dir", "/b"},
		"absolute path":      {"envoy", "--identity-dir", "b"},
		"at most 107 bytes":  {"envoy", "--spire", "/" + strings.Repeat("a", 107)},
		"want an absolute":   {"envoy", "--spire", "agent.sock"},
		"--spire is for":     {"grpc", "--spire", "/a"},
		"--identity-dir is ": {"grpc", "--identity-dir", "/a"},
	} {
		assert.Contains(t, command(t, append([]string{"bootstrap"}, flags...)...).stderr, why)
	}
}
