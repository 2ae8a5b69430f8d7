package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkStart starts the program as a process of its own over 100,000 ServiceEntries with five endpoints each, one a
// file or in two large files, until it says that it is ready. On a busy machine only the processor time means anything.
func BenchmarkStart(b *testing.B) {
	const n = 100_000
	for name, perFile := range map[string]int{"files=100000": 1, "files=2": n / 2} {
		b.Run(name, func(b *testing.B) {
			dir := b.TempDir()
			for i := 0; i < n; i += perFile {
				sub := filepath.Join(dir, fmt.Sprintf("d%03d", i/1000))
				require.NoError(b, os.MkdirAll(sub, 0o700))
				var text strings.Builder
				for j := i; j < i+perFile; j++ {
					writeEntry(&text, j)
				}
				require.NoError(b, os.WriteFile(filepath.Join(sub, fmt.Sprintf("%06d.yaml", i)), []byte(text.String()), 0o600))
			}
			var busy time.Duration
			b.ResetTimer()
			for range b.N {
				busy += startOnce(b, dir)
			}
			b.ReportMetric(busy.Seconds()/float64(b.N), "cpu-s/op")
		})
	}
}

// startOnce starts the program, waits until it is ready, kills it, and returns the processor time that it took.
func startOnce(b *testing.B, dir string) time.Duration {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	admin := free.Addr().String()
	require.NoError(b, free.Close())
	ctx, cancel := context.WithTimeout(b.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "serve", "--config-source", "fs://"+dir, "--listen", "127.0.0.1:0", "--admin", admin, "--state-dir", "off")
	cmd.Env = append(os.Environ(), asProgram+"=1")
	require.NoError(b, cmd.Start())
	for !ready(ctx, "http://"+admin+"/-/ready") {
		require.NoError(b, ctx.Err())
		time.Sleep(10 * time.Millisecond)
	}
	b.StopTimer()
	require.NoError(b, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	b.StartTimer()
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

func ready(ctx context.Context, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer res.Body.Close() //nolint:errcheck // only read
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode == http.StatusOK
}

func writeEntry(text *strings.Builder, i int) {
	fmt.Fprintf(text, `---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata:
  name: svc-%[1]d
  namespace: ns-%[2]d
  labels:
    app: svc-%[1]d
spec:
  hosts:
  - svc-%[1]d.mesh.internal
  location: MESH_INTERNAL
  resolution: STATIC
  ports:
  - number: 8080
    name: http
    protocol: HTTP
  endpoints:
`, i, i%100)
	for e := range 5 {
		fmt.Fprintf(text, `  - address: 10.%d.%d.%d
    ports:
      http: 18080
    labels:
      version: v%d
    locality: eu/eu-1/a
    weight: 10
`, i>>16, i>>8&255, i&255, e)
	}
}
