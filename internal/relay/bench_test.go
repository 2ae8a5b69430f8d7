package relay

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/aggregate"
	"tributary/memstore"
	"tributary/resource"
	"tributary/server/mcp"
)

// BenchmarkServe takes 100,000 objects of one source or of two from their tables to the responses.
func BenchmarkServe(b *testing.B) {
	const size = 100_000
	for _, sourceCount := range []int{1, 2} {
		b.Run(fmt.Sprintf("sources=%d", sourceCount), func(b *testing.B) {
			var inputs []aggregate.Source
			for s := range sourceCount {
				var resources []*resource.Resource
				for i := range size / sourceCount {
					name := fmt.Sprintf("s%d-%06d", s, i)
					r, err := resource.New(
						resource.Meta{Key: resource.Key{Kind: resource.ServiceEntry, Namespace: "shop", Name: name}, Labels: map[string]string{"app": name}},
						&networking.ServiceEntry{Hosts: []string{name + ".shop.example"}, Endpoints: []*networking.WorkloadEntry{{Address: "10.0.0.1"}}},
					)
					require.NoError(b, err)
					resources = append(resources, r)
				}
				table := new(memstore.Table)
				table.Apply(resources, nil)
				table.MarkSynced()
				inputs = append(inputs, aggregate.Source{Name: fmt.Sprint(s), Reader: table})
			}
			heap := func() float64 {
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return float64(m.HeapAlloc)
			}
			before := heap()
			for b.Loop() {
				view := aggregate.New(inputs...)
				catalog := mcp.New(view, mcp.Options{Log: slog.New(slog.DiscardHandler)})
				ctx, cancel := context.WithCancel(context.Background())
				var parts sync.WaitGroup
				parts.Go(func() { _ = view.Run(ctx) })
				parts.Go(func() { _ = catalog.Run(ctx) })
				coll, release, err := catalog.Collection(ctx, nil, "networking.istio.io/v1/ServiceEntry")
				require.NoError(b, err)
				for !coll.Synced() || coll.Len() < size {
					runtime.Gosched()
				}
				b.StopTimer()
				b.ReportMetric((heap()-before)/size, "heap-B/object")
				b.StartTimer()
				release()
				cancel()
				parts.Wait()
			}
		})
	}
}
