package transport

import (
	"flag"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"

	"tributary/server/xds"
)

var attack = flag.Bool("attack", false, "measure what clients that mean harm cost an honest one")

// TestUnderAttack prints what an honest client has to wait for while others mean harm, and the most memory that the process
// needed, which is that of the attackers too. It asserts nothing about time.
func TestUnderAttack(t *testing.T) {
	if !*attack {
		t.Skip("measures, takes a minute: -attack")
	}
	const rounds, hostile = 15, 200
	for _, s := range []struct {
		name  string
		begin func(w *world)
	}{
		{"peace", func(*world) {}},
		{"1,000 streams that say nothing", func(w *world) {
			for range 10 {
				r := w.raw()
				for range 100 {
					r.open(false)
				}
			}
			eventually(w.t, func() bool { return len(w.server.Clients()) == 1000 })
		}},
		{"200 requests of 60 MB", func(w *world) {
			for range hostile {
				r := w.raw()
				id := r.open(true)
				r.data(id, prefixOf(60<<20))
				r.data(id, make([]byte, 32<<10))
			}
		}},
		{"200 requests of 15 MB that stall", func(w *world) {
			for range hostile {
				r := w.raw()
				id := r.open(true)
				r.data(id, prefixOf(15<<20))
				r.data(id, make([]byte, 48<<10))
			}
		}},
		{"200 streams whose nodes claim 10,000 hops", func(w *world) {
			var hops []any
			for i := range 10_000 {
				hops = append(hops, fmt.Sprintf("hop-%010d", i))
			}
			metadata, err := structpb.NewStruct(map[string]any{"TRIBUTARY_HOPS": hops})
			require.NoError(w.t, err)
			for i := range hostile {
				c := w.delta()
				node := &corev3.Node{Id: fmt.Sprint(i), Metadata: metadata}
				go func() { _ = c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: xds.ClusterURL, Node: node}) }()
			}
		}},
		{"20 requests for 190,000 names", func(w *world) {
			names := make([]string, 190_000)
			for i := range names {
				names[i] = fmt.Sprint("a-name-that-is-not-there-", i)
			}
			for range hostile / 10 {
				c := w.delta()
				go func() {
					_ = c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: testType, ResourceNamesSubscribe: names})
				}()
			}
		}},
	} {
		t.Run(s.name, func(t *testing.T) {
			w := newWorld(t, Limits{})
			var c xds.Commit
			for i := range 1000 {
				c.Put = append(c.Put, thing(t, fmt.Sprint(i), "1", fmt.Sprintf("%0600d", i)))
			}
			w.coll(testType).Apply(c)
			w.coll(testType).MarkSynced()
			runtime.GC()
			peak := watchMemory(t)
			s.begin(w)
			var first, change []time.Duration
			for i := range rounds {
				began := time.Now()
				c := w.delta()
				c.ask(testType)
				a := c.next()
				first = append(first, time.Since(began))
				require.Len(t, a.puts, 1000)
				c.ack(testType, a)
				began = time.Now()
				w.set(testType, fmt.Sprint("0@", i+2))
				c.expect(testType, fmt.Sprint("0@", i+2))
				change = append(change, time.Since(began))
				require.NoError(t, c.stream.CloseSend())
			}
			slices.Sort(first)
			slices.Sort(change)
			t.Logf("| %s | %.1f ms (%.1f) | %.1f ms (%.1f) | %d MB |", s.name, ms(first[rounds/2]), ms(first[rounds-1]),
				ms(change[rounds/2]), ms(change[rounds-1]), peak()>>20)
		})
	}
}

func ms(d time.Duration) float64 { return d.Seconds() * 1000 }

// watchMemory returns a function that tells the most memory in use since.
func watchMemory(t *testing.T) (peak func() uint64) {
	var most uint64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapInuse+m.StackInuse)
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	end := sync.OnceFunc(func() {
		close(stop)
		wg.Wait()
	})
	t.Cleanup(end)
	return func() uint64 {
		end()
		return most
	}
}
