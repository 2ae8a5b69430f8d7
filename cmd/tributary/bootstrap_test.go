package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestBootstrap(t *testing.T) {
	got := command(t, "bootstrap", "istiod", "--server", "mesh.example:16010")
	assert.Zero(t, got.code)
	assert.Contains(t, got.stdout, "- address: \"xds://mesh.example:16010\"\n")
	assert.Contains(t, got.stdout, "- address: k8s://\n")
	assert.Contains(t, got.stderr, "mesh configuration of istiod")
	got = command(t, "bootstrap", "grpc", "--node-id", "n1")
	assert.Contains(t, got.stdout, `"server_uri": "127.0.0.1:16010"`)
	assert.Contains(t, got.stdout, `"node": {"id": "n1"}`)
}
