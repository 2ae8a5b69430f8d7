package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/cmd/internal/load"
)

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", entry("reviews", 80)+"---\n"+entry("ratings", 80))
	s := serving(t, served(dir)...)
	s.awaitReady(t)
	for _, mode := range []string{"sotw", "delta"} {
		got := command(t, "load", "--server", s.xds, "--clients", "5", "--mode", mode, "--duration", "0", "-o", "json")
		require.Zero(t, got.code, got.stderr)
		var r load.Report
		require.NoError(t, json.Unmarshal([]byte(got.stdout), &r))
		assert.Equal(t, 5, r.Synced)
		assert.Equal(t, 5*16, r.Initial.Messages, "all kinds")
		assert.EqualValues(t, 5*2, r.Initial.Resources)
	}
	got := command(t, "load", "--server", s.xds, "--clients", "3", "--per-connection", "3", "--types",
		"se,networking.istio.io/v1beta1/Gateway", "--duration", "0")
	require.Zero(t, got.code, got.stderr)
	assert.Regexp(t, `^clients   3 synced, 0 failed, of 3
sync      \S+ until all were; each: p50 \S+, p90 \S+, p99 \S+, max \S+
          6 messages, \S+ KiB, 6 resources
after it  for \S+: 0 messages, 0 B, 0 resources
changes   0, 0.0 a second; 0.0 messages and 0 B a second
lag       nothing measured
$`, got.stdout)

	got = command(t, "load", "--server", s.admin, "--clients", "2", "--duration", "0")
	assert.Equal(t, 1, got.code)
	assert.Contains(t, got.stderr, "2 of 2 streams to "+s.admin+" failed; the first: ")
}

func TestSize(t *testing.T) {
	assert.Equal(t, "1023 B, 1.0 KiB, 1.5 MiB, 2.00 GiB", size(1023)+", "+size(1024)+", "+size(3<<19)+", "+size(2<<30))
}
