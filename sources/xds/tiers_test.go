package xds

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/lastgood"
)

// tier is a tributary that reads from others and serves the same resources.
type tier struct {
	*reader
	server *server
}

func newTier(t testing.TB, settings Settings, servers ...string) *tier {
	r := read(t, settings, servers...)
	return &tier{r, serveView(t, r.table, nil)}
}

// awaitSame waits until every tier has the resources of the first store.
func awaitSame(t testing.TB, first memstore.Reader, tiers ...memstore.Reader) {
	t.Helper()
	for i, table := range tiers {
		await(t, fmt.Sprintf("tier %d has the same", i+1), func() bool { return table.Synced() && equal(first, table) })
	}
}

// oneSmallMessage is how many bytes a change of one object may take on a hop: the object, its name and version, and a header.
const oneSmallMessage = 512

func TestTiers_SendSmallMessageForChange(t *testing.T) {
	table := store(entries(t, 2000)...)
	first := newTier(t, Settings{}, serveView(t, table, nil).address)
	second := newTier(t, Settings{}, first.server.address)
	third := read(t, Settings{}, second.server.address)
	awaitSame(t, table, first.table, second.table, third.table)

	hops := []*reader{first.reader, second.reader, third}
	for name, change := range map[string]func(){
		"update": func() { table.Apply([]*resource.Resource{entry(t, "svc-000007", "changed.example.com")}, nil) },
		"add":    func() { table.Apply([]*resource.Resource{entry(t, "new", "new.example.com")}, nil) },
		"delete": func() { table.Apply(nil, []resource.Key{key("svc-000008")}) },
	} {
		for _, hop := range hops {
			hop.traffic.reset()
		}
		change()
		awaitSame(t, table, first.table, second.table, third.table)
		for i, hop := range hops {
			require.EqualValues(t, 1, hop.traffic.messages.Load(), "messages for one %s on hop %d", name, i+1)
			require.Less(t, hop.traffic.bytes.Load(), int64(oneSmallMessage), "bytes for one %s on hop %d", name, i+1)
		}
	}
}

// TestSource_ResumesAfterRestart: the resources of the sink have the versions of the upstream.
func TestSource_ResumesAfterRestart(t *testing.T) {
	table := store(entries(t, 2000)...)
	above := serveView(t, table, nil)
	r := read(t, Settings{}, above.address)
	awaitSame(t, table, r.table)
	full := r.traffic.bytes.Load()
	for _, c := range []struct {
		name      string
		meanwhile func()
	}{
		{"change", func() { table.Apply([]*resource.Resource{entry(t, "svc-000007", "changed.example.com")}, nil) }},
		{"delete", func() { table.Apply(nil, []resource.Key{key("svc-000008")}) }},
		{"break", func() { table.Apply([]*resource.Resource{entry(t, "svc-000009", "not a host")}, nil) }},
		{"delete the broken object", func() { table.Apply(nil, []resource.Key{key("svc-000009")}) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r.runAgain(t, c.meanwhile)
			await(t, "it has read", func() bool {
				return equal(table, r.table) || c.name == "break" && len(r.status().Quarantined) == 1
			})
			require.Less(t, r.traffic.bytes.Load(), full/100, "the whole is %d bytes", full)
		})
	}
}

// TestRestart_ResumesFromStateDirectory restarts a tier that has a state directory: neither the tier nor the reader below it
// receives more than the changes that the upstream made meanwhile.
func TestRestart_ResumesFromStateDirectory(t *testing.T) {
	upstream := store(entries(t, 5000)...)
	upstreamServer := serveView(t, upstream, nil)
	state, err := lastgood.Open(t.TempDir(), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer func() { require.NoError(t, state.Close()) }()
	before := readRemembering(t, state.Source("up"), Settings{}, func(*Source) {}, upstreamServer.address)
	tierServer := serveView(t, before.table, nil)
	below := read(t, Settings{}, tierServer.address)
	awaitSame(t, upstream, before.table, below.table)
	fullTransfer := before.traffic.bytes.Load()

	tierServer.stop()
	before.stop()
	below.traffic.reset()
	upstream.Apply([]*resource.Resource{entry(t, "svc-000007", "changed.example.com")}, []resource.Key{key("svc-000008")})

	after := readRemembering(t, state.Source("up"), Settings{}, func(*Source) {}, upstreamServer.address)
	defer after.stop()
	restartedServer := tierServer.rest(t, after.table)
	defer restartedServer.stop()
	awaitSame(t, upstream, after.table, below.table)
	require.NotNil(t, after.status().Restored)
	for name, reader := range map[string]*reader{"restarted tier": after, "reader below": below} {
		require.Less(t, reader.traffic.bytes.Load(), fullTransfer/100, "%s: a full transfer is %d bytes", name, fullTransfer)
	}
	require.Equal(t, sources.Healthy, below.status().State)
}

// runAgain ends the source, and begins it again.
func (r *reader) runAgain(t *testing.T, meanwhile func()) {
	t.Helper()
	require.NoError(t, r.supervisor.Reconfigure([]sources.Spec{{Name: "up", Table: r.table, Source: idle{}}}))
	r.traffic.reset()
	meanwhile()
	require.NoError(t, r.supervisor.Reconfigure([]sources.Spec{{Name: "up", Table: r.table, Source: r.source}}))
}

type idle struct{}

// Run implements sources.Source.
func (idle) Run(ctx context.Context, _ sources.Sink) error {
	<-ctx.Done()
	return ctx.Err()
}

// rest has another process take over the address of s.
func (s *server) rest(t testing.TB, view memstore.Reader) *server {
	next := newServer(t, view, nil)
	next.address = s.address
	next.start()
	return next
}

func TestFailover_ToEqualReplicaSendsDifferences(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"delta", "sotw"} {
		t.Run(mode, func(t *testing.T) {
			firstStore, secondStore := store(entries(t, 5000)...), store(entries(t, 5000)...)
			first, second := serveView(t, firstStore, nil), serveView(t, secondStore, nil)
			reader := read(t, Settings{Mode: mode}, first.address, second.address)
			awaitSame(t, firstStore, reader.table)
			full := reader.traffic.bytes.Load()
			reader.awaitState(t, sources.Healthy, "reads from "+first.address)

			reader.traffic.reset()
			first.stop()
			await(t, "the second server is used", func() bool {
				return len(second.engine.Clients()) == 1 && len(second.engine.Clients()[0].Types) == len(reader.source.kinds)
			})
			if mode == "delta" {
				secondStore.Apply([]*resource.Resource{entry(t, "svc-000007", "changed.example.com")}, nil)
				awaitSame(t, secondStore, reader.table)
			}
			require.Less(t, reader.traffic.bytes.Load(), full/100, "the whole is %d bytes", full)
			reader.awaitState(t, sources.Healthy, "reads from "+second.address)
			require.Equal(t, 5000, reader.table.Snapshot().Len())
		})
	}
}

// BenchmarkOneChange measures a change among n objects that crosses tiers in one process, from the first store to the
// last.
func BenchmarkOneChange(b *testing.B) {
	for _, tiers := range []int{1, 3} {
		for _, n := range []int{1000, 100_000} {
			b.Run(fmt.Sprintf("tiers=%d/objects=%d", tiers, n), func(b *testing.B) {
				table := store(entries(b, n)...)
				address := serveView(b, table, nil).address
				served, start := heap(), time.Now()
				var hops []*reader
				for len(hops) < tiers {
					if len(hops) > 0 {
						address = serveView(b, hops[len(hops)-1].table, nil).address
					}
					hops = append(hops, read(b, Settings{}, address))
				}
				last := hops[tiers-1].table
				awaitSame(b, table, last)
				first, memory := time.Since(start), heap()-served
				for _, hop := range hops {
					hop.traffic.reset()
				}
				i := 0
				for b.Loop() {
					i++
					change := entry(b, "svc-000007", fmt.Sprintf("r%d.example.com", i))
					arrived := last.Changed()
					table.Apply([]*resource.Resource{change}, nil)
					<-arrived
				}
				b.ReportMetric(float64(first.Milliseconds()), "first-ms")
				b.ReportMetric(float64(memory)/float64(n), "heap-B/object")
				for h, hop := range hops {
					b.ReportMetric(float64(hop.traffic.bytes.Load())/float64(i), fmt.Sprintf("hop%d-B/op", h+1))
					b.ReportMetric(float64(hop.traffic.messages.Load())/float64(i), fmt.Sprintf("hop%d-messages/op", h+1))
				}
			})
		}
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
