package file

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/sources"
)

// BenchmarkStart measures a start up to synced, over a directory with one ServiceEntry a file, 1,000 files a directory.
func BenchmarkStart(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		b.Run(fmt.Sprintf("files=%d", n), func(b *testing.B) {
			dir := manyFiles(b, n)
			b.ReportAllocs()
			var busy time.Duration
			b.ResetTimer()
			for range b.N {
				before := processorTime(b)
				start(b, dir, n)
				busy += processorTime(b) - before
			}
			b.ReportMetric(float64(busy.Nanoseconds())/float64(b.N*n), "cpu-ns/file")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/file")
		})
	}
}

// processorTime returns the processor time of this process. Unlike elapsed time it is meaningful on a busy machine.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func start(b *testing.B, dir string, n int) {
	source, err := New("fs://"+dir, Settings{})
	require.NoError(b, err)
	table := new(memstore.Table)
	supervisor := sources.NewSupervisor(sources.Options{})
	require.NoError(b, supervisor.Reconfigure([]sources.Spec{{Name: "bench", Source: source, Table: table}}))
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- supervisor.Run(ctx) }()
	for {
		changed := table.Changed()
		if table.Synced() {
			break
		}
		<-changed
	}
	require.Equal(b, n, table.Snapshot().Len())
	b.StopTimer()
	cancel()
	require.NoError(b, <-ended)
	b.StartTimer()
}

func manyFiles(b *testing.B, n int) string {
	dir := b.TempDir()
	for i := range n {
		sub := filepath.Join(dir, fmt.Sprintf("d%03d", i/1000))
		if i%1000 == 0 {
			require.NoError(b, os.Mkdir(sub, 0o700))
		}
		name := fmt.Sprintf("svc-%06d", i)
		require.NoError(b, os.WriteFile(filepath.Join(sub, name+".yaml"), []byte(entry(name, name+".example.com")), 0o600))
	}
	return dir
}
