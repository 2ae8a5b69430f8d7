package file

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/sources"
)

// BenchmarkChurn measures a change of one object in a file of many, from the file to the table: in place, so that the
// other objects keep their lines, and with one more line, which shifts all objects below it.
func BenchmarkChurn(b *testing.B) {
	const objects = 100
	for _, shifts := range []bool{false, true} {
		b.Run(fmt.Sprintf("objects=%d/lines shift=%t", objects, shifts), func(b *testing.B) {
			dir := b.TempDir()
			var unchanged strings.Builder
			for i := range objects - 1 {
				unchanged.WriteString("---\n" + entry(fmt.Sprintf("svc-%03d", i), fmt.Sprintf("svc-%03d.example.com", i)))
			}
			write := func(change int) {
				text := entry("changed", fmt.Sprintf("changed-%d.example.com", change)) + unchanged.String()
				if shifts {
					text = strings.Repeat("# a line more\n", change%2) + text
				}
				require.NoError(b, os.WriteFile(filepath.Join(dir, ".f"), []byte(text), 0o600))
				require.NoError(b, os.Rename(filepath.Join(dir, ".f"), filepath.Join(dir, "f.yaml")))
			}
			write(0)
			source, err := New("fs://"+dir, Settings{QuietDelay: time.Millisecond})
			require.NoError(b, err)
			table := new(memstore.Table)
			supervisor := sources.NewSupervisor(sources.Options{})
			require.NoError(b, supervisor.Reconfigure([]sources.Spec{{Name: "bench", Source: source, Table: table}}))
			ctx, cancel := context.WithCancel(b.Context())
			ended := make(chan error, 1)
			go func() { ended <- supervisor.Run(ctx) }()
			next := func(ready func() bool) {
				for {
					changed := table.Changed()
					if ready() {
						return
					}
					<-changed
				}
			}
			next(table.Synced)
			changes := 0
			change := func() {
				changes++
				before := table.Snapshot().Revision()
				write(changes)
				next(func() bool { return table.Snapshot().Revision() > before })
			}
			change() // the first one is for finding out that the file is one that changes
			b.ReportAllocs()
			b.ResetTimer()
			before := processorTime(b)
			for range b.N {
				change()
			}
			b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
			b.StopTimer()
			cancel()
			require.NoError(b, <-ended)
		})
	}
}
