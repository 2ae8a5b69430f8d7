package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProgram(t *testing.T) {
	address, _ := server(t)
	for _, mode := range []string{"sotw", "delta"} {
		var stdout, stderr bytes.Buffer
		args := []string{
			"-server", address, "-clients", "3", "-per-connection", "2", "-mode", mode,
			"-types", typeA + "," + typeB, "-duration", "0",
		}
		require.NoError(t, run(t.Context(), append(args, "-json"), &stdout, &stderr), stderr.String())
		var report Report
		require.NoError(t, json.Unmarshal(stdout.Bytes(), &report))
		require.Equal(t, 3, report.Synced)
		require.EqualValues(t, 3*2*100, report.Initial.Resources)
		stdout.Reset()
		require.NoError(t, run(t.Context(), args, &stdout, &stderr), stderr.String())
		require.Regexp(t, `^clients   3 synced, 0 failed, of 3
sync      \S+ until all were; each: p50 \S+, p90 \S+, p99 \S+, max \S+
          6 messages, \S+ KiB, 600 resources
after it  for \S+: 0 messages, 0 B, 0 resources
changes   0, 0.0 a second; 0.0 messages and 0 B a second
lag       nothing measured
$`, stdout.String())
	}
}

func TestProgram_RefusesWrongFlags(t *testing.T) {
	for want, args := range map[string][]string{
		"want at least one client":          {"-clients", "0"},
		`unknown type "cheese"`:             {"-types", "se,cheese"},
		"want sotw or delta":                {"-mode", "x"},
		"want NAME=VALUE":                   {"-metadata", "a"},
		`unexpected argument "more"`:        {"more"},
		"100 of 100 streams to 127.0.0.1:1": {"-server", "127.0.0.1:1"},
	} {
		var stdout, stderr bytes.Buffer
		require.ErrorContains(t, run(t.Context(), args, &stdout, &stderr), want)
	}
}

func TestSize(t *testing.T) {
	require.Equal(t, "1023 B, 1.0 KiB, 1.5 MiB, 2.00 GiB", size(1023)+", "+size(1024)+", "+size(3<<19)+", "+size(2<<30))
}
