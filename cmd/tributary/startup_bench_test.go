package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkStart starts the program as a process of its own with 100,000 ServiceEntries of five endpoints each, until
// all of them were read: the first time, and with the state of an earlier start. On a busy machine only processor time
// and memory are meaningful. The memory includes the pages of the program and of its state file, which the kernel takes
// back when it needs them; a control group with a limit a ninth above GOMEMLIMIT has the same effect.
func BenchmarkStart(b *testing.B) {
	const n = 100_000
	for _, perFile := range []int{1, 100, n / 2} {
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
		for _, limit := range []string{"off", "360MiB"} {
			state := b.TempDir()
			for _, start := range []string{"cold", "warm"} {
				b.Run(fmt.Sprintf("files=%d/limit=%s/%s", n/perFile, limit, start), func(b *testing.B) {
					var busy time.Duration
					var peak int64
					for range b.N {
						if start == "cold" {
							require.NoError(b, os.RemoveAll(state))
						}
						cpu, memory := startOnce(b, dir, state, limit)
						busy, peak = busy+cpu, max(peak, memory)
					}
					b.ReportMetric(busy.Seconds()/float64(b.N), "cpu-s/op")
					b.ReportMetric(float64(peak)/(1<<20), "peak-MiB")
				})
			}
		}
	}
}

// startOnce starts the program, waits until everything was read by it and is stored, ends it, and returns the processor time
// that it took until it had read everything, and the most memory that it had.
func startOnce(b *testing.B, dir, state, limit string) (duration time.Duration, peak int64) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	admin := free.Addr().String()
	require.NoError(b, free.Close())
	ctx, cancel := context.WithTimeout(b.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "serve", "--config-source", "fs://"+dir, "--listen", "127.0.0.1:0", "--admin", admin,
		"--state-dir", state)
	cmd.Env = append(os.Environ(), asProgram+"=1", "GOMEMLIMIT="+limit)
	require.NoError(b, cmd.Start())
	await := func(goal string) {
		for !strings.Contains(shown(ctx, "http://"+admin+"/debug/sources"), goal) {
			require.NoError(b, ctx.Err())
			time.Sleep(10 * time.Millisecond)
		}
	}
	await(`"synced": true`)
	duration = processorTime(b, cmd.Process.Pid)
	await(`"revision": 1`)
	require.NoError(b, cmd.Process.Kill())
	_ = cmd.Wait()                                                              // it was killed
	return duration, cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10 // it is in KiB
}

// processorTime returns the processor time of a process.
func processorTime(b *testing.B, pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Skip("there is no /proc here")
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	var ticks int64                   // of 10 ms
	for _, f := range fields[11:13] { // in user mode, and in the kernel
		n, err := strconv.ParseInt(f, 10, 64)
		require.NoError(b, err)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// shown returns a page, or "" on errors.
func shown(ctx context.Context, url string) string {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return ""
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return ""
	}
	defer response.Body.Close() //nolint:errcheck // only read
	page, _ := io.ReadAll(response.Body)
	return string(page)
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
