package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestValidateStdin(t *testing.T) {
	root := newRoot()
	var buffer bytes.Buffer
	root.SetIn(strings.NewReader(strings.ReplaceAll(entry("bad", 80000), "shop", "mall")))
	root.SetOut(&buffer)
	root.SetErr(&buffer)
	root.SetArgs([]string{"validate", "-"})
	require.Error(t, root.ExecuteContext(t.Context()))
	assert.Contains(t, buffer.String(), "stdin:4:47: ServiceEntry mall/bad: port number 80000")
}

// Settings that Envoys ignore are reported to those who ask for them.
func TestValidateForEnvoy(t *testing.T) {
	const nowhere = "stdin:4:14: DestinationRule default/d: warning: spec.host: no ServiceEntry has the host a.example: add one, or correct " +
		"the host (unknown-host)\n"
	for client, want := range map[string]string{
		"envoy": nowhere + "stdin:4:49: DestinationRule default/d: warning: spec.trafficPolicy.tunnel has no effect on Envoys: connections " +
			"are made directly\n" +
			"stdin:4:14: DestinationRule default/d: warning: spec.host has no effect on Envoys: there is no host a.example\n",
		"": nowhere,
	} {
		root := newRoot()
		var buffer bytes.Buffer
		root.SetIn(strings.NewReader("apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: d}\n" +
			"spec: {host: a.example, trafficPolicy: {tunnel: {targetHost: a.example, targetPort: 80}}}\n"))
		root.SetOut(&buffer)
		root.SetErr(io.Discard)
		root.SetArgs([]string{"validate", "--for", client, "-"})
		require.NoError(t, root.ExecuteContext(t.Context()))
		assert.Equal(t, want, buffer.String())
	}
	root := newRoot()
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)
	root.SetArgs([]string{"validate", "--for", "nginx", "-"})
	require.ErrorContains(t, root.ExecuteContext(t.Context()), "want envoy")
}

func TestDiffStdin(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", entry("reviews", 80))
	root := newRoot()
	var buffer bytes.Buffer
	root.SetIn(strings.NewReader(entry("reviews", 81)))
	root.SetOut(&buffer)
	root.SetErr(&buffer)
	root.SetArgs([]string{"diff", dir + "/a.yaml", "-"})
	require.Error(t, root.ExecuteContext(t.Context()))
	assert.Contains(t, buffer.String(), "+++ stdin:1 ServiceEntry shop/reviews\n")
	assert.Contains(t, buffer.String(), "1 object differs, 0 are only in "+dir+"/a.yaml, 0 only in stdin\n")
}
