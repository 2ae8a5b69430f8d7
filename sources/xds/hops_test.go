package xds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"tributary/adsc"
	"tributary/internal/names"
	"tributary/internal/xdstest"
	"tributary/memstore"
	"tributary/resource"
	"tributary/server/mcp"
	"tributary/sources"
)

// looped is a tributary among several that read from each other.
type looped struct {
	hops   *mcp.Hops
	table  *memstore.Table
	server *server
	reader *reader
}

func newLooped(t *testing.T, name string) *looped {
	l := &looped{hops: mcp.NewHops(name), table: store()}
	l.server = serveView(t, l.table, l.hops)
	return l
}

func (l *looped) read(t *testing.T, from *looped) {
	l.reader = read(t, Settings{Hops: l.hops}, from.server.address)
}

func (l *looped) refused() string {
	if st := l.reader.status(); st.State == sources.Denied {
		return st.Message
	}
	return ""
}

func TestLoops_Refused(t *testing.T) {
	t.Run("with itself", func(t *testing.T) {
		a := newLooped(t, "a")
		a.read(t, a)
		await(t, "it is refused", func() bool { return a.refused() != "" })
		require.Contains(t, a.refused(), "a loop: "+a.server.address+" reads from this tributary")
		require.False(t, a.reader.status().Synced)
		require.Zero(t, a.reader.table.Snapshot().Len(), "no resource was taken")
	})
	t.Run("of two", func(t *testing.T) {
		a, b := newLooped(t, "a"), newLooped(t, "b")
		a.read(t, b)
		await(t, "a reads", func() bool { return a.reader.table.Synced() })
		b.read(t, a)
		await(t, "it is refused", func() bool { return b.refused() != "" })
		require.Empty(t, a.refused(), "the other direction stays")

		a.reader.stop()
		await(t, "the loop is gone", func() bool { return b.reader.table.Synced() && b.refused() == "" })
	})
	t.Run("of four", func(t *testing.T) {
		tiers := []*looped{newLooped(t, "a"), newLooped(t, "b"), newLooped(t, "c"), newLooped(t, "d")}
		for i, l := range slices.Backward(tiers) { // each reads from the next
			l.read(t, tiers[(i+1)%len(tiers)])
			await(t, "it reads, or is refused", func() bool { return l.reader.table.Synced() || l.refused() != "" })
		}
		await(t, "a reader is refused", func() bool {
			return slices.ContainsFunc(tiers, func(l *looped) bool { return l.refused() != "" })
		})
	})
	t.Run("that is closed after all were connected", func(t *testing.T) {
		top, a, b := newLooped(t, "top"), newLooped(t, "a"), newLooped(t, "b")
		a.read(t, top)
		b.read(t, a)
		await(t, "they read", func() bool { return a.reader.table.Synced() && b.reader.table.Synced() })
		top.read(t, b)
		await(t, "it is refused", func() bool { return top.refused() != "" })
	})
}

// TestLoop_NoticedAfterUpstreamClosesIt has the server say that it reads from us when it has been read from for a while.
func TestLoop_NoticedAfterUpstreamClosesIt(t *testing.T) {
	looped, above := newLooped(t, "us"), newLooped(t, "above")
	looped.read(t, above)
	await(t, "it reads", func() bool { return looped.reader.table.Synced() })
	source := new(int)
	above.hops.Reads(source, []string{looped.hops.Self()})
	await(t, "it is refused", func() bool { return looped.refused() != "" })
	above.hops.Reads(source, nil)
	looped.reader.awaitState(t, sources.Healthy, "")
}

// TestForgedHops_DoNotCutUpstream has clients claim arbitrary hops.
func TestForgedHops_DoNotCutUpstream(t *testing.T) {
	above, looped := newLooped(t, "above"), newLooped(t, "us")
	above.table.Apply([]*resource.Resource{entry(t, "a", "a.example.com")}, nil)
	looped.read(t, above)
	await(t, "it is read", func() bool { return looped.reader.table.Synced() })

	hops := []any{"evil", "evil/above", "above", "above/us", "us", "us/above", "", "/", strings.Repeat("x", 1<<14)} // larger nodes are refused
	for i := range 800 {
		hops = append(hops, fmt.Sprintf("%d/%s", i, strings.Repeat("y", 100)))
	}
	claims, err := structpb.NewStruct(map[string]any{
		"TRIBUTARY_HOPS": hops, "TRIBUTARY_INSTANCES": hops, "GENERATOR": "api",
	})
	require.NoError(t, err)
	forged, err := structpb.NewStruct(map[string]any{"TRIBUTARY_HOPS": []any{"evil/above"}})
	require.NoError(t, err)
	for _, claim := range []*structpb.Struct{forged, claims} {
		answered := make(chan struct{}, 1)
		client, err := adsc.New(adsc.Config{
			Addresses: []string{looped.server.address}, Mode: adsc.Delta, Log: slog.New(slog.DiscardHandler),
			Node: &corev3.Node{Id: "evil", UserAgentName: "tributary", Metadata: claim},
			Subscriptions: []adsc.Subscription{{TypeURL: entriesV1, Handler: func(context.Context, *adsc.Response) error {
				answered <- struct{}{}
				return nil
			}}},
		})
		require.NoError(t, err)
		goUntilEnd(t, client.Run)
		select {
		case <-answered:
		case <-time.After(patience):
			require.FailNow(t, "an honest client got no response")
		}
	}
	// Whatever came of it has come of it when changes have gone all the way several times.
	for i := range 20 {
		name := fmt.Sprintf("b%d", i)
		above.table.Apply([]*resource.Resource{entry(t, name, name+".example.com")}, nil)
		await(t, "it is read on", func() bool { return looped.reader.get(name) != nil })
	}
	require.Equal(t, sources.Healthy, looped.reader.status().State, looped.reader.status().Message)
	for _, c := range above.server.engine.Clients() {
		require.Less(t, proto.Size(c.Node), 1000, "our own node")
	}
}

// claimed is a Hops that records the last instances.
type claimed struct {
	mu   sync.Mutex
	last []string
	most int
}

func (*claimed) Self() string { return "00000000000000aa" }

func (c *claimed) Reads(_ any, instances []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.most = instances, max(c.most, len(instances))
}

// withBackoff is for tests, which have no time.
func (s *Source) withBackoff(policy func() backoff.BackOff) *Source {
	s.config.Backoff = policy
	return s
}

// counted is a backoff that counts the waits, and has no time.
type counted struct{ waits *atomic.Int32 }

func (c counted) NextBackOff() time.Duration { c.waits.Add(1); return time.Millisecond }
func (counted) Reset()                       {}

// TestLoop_RefusedByInstancesType has a server with a header that never names us, and an instances resource that does
// so later.
func TestLoop_RefusedByInstancesType(t *testing.T) {
	const upstream = "00000000000000bb"
	var closed, streams, waits atomic.Int32
	closed.Store(1)
	server := &xdstest.Server{Delta: func(before int, s xdstest.DeltaStream) error {
		streams.Add(1)
		_ = s.SetHeader(metadata.Pairs(names.InstancesHeader, upstream))
		for {
			r, err := s.Recv()
			if err != nil {
				return err
			}
			if r.GetResponseNonce() != "" {
				continue
			}
			out := sentDelta(t, fmt.Sprint("a=h", before))
			out.Resources[0].Version = strconv.Itoa(before)
			if r.GetTypeUrl() == names.InstancesType {
				instances := upstream
				if closed.Load() == 1 {
					instances += " 00000000000000aa"
				}
				out.Resources = []*discoveryv3.Resource{{
					Name: "instances", Version: instances, Resource: xdstest.Packed(t, wrapperspb.String(instances)),
				}}
			}
			out.TypeUrl = r.GetTypeUrl()
			if err := s.Send(out); err != nil {
				return err
			}
		}
	}}
	address := server.Serve(t)
	recorded := &claimed{}
	r := readWith(t, Settings{Mode: "delta", SubscribedResources: onlyEntries, Hops: recorded}, func(s *Source) {
		s.withBackoff(func() backoff.BackOff { return counted{&waits} })
	}, address)
	await(t, "it was tried several times", func() bool { return waits.Load() >= 5 })
	r.awaitState(t, sources.Denied, "a loop: "+address)
	require.LessOrEqual(t, streams.Load(), waits.Load()+1, "each refusal is backed off from")
	require.Equal(t, "h0.example.com", hostOf(t, r.get("a")), "no resource was taken since the loop was found")
	recorded.mu.Lock()
	require.Empty(t, recorded.last)
	recorded.mu.Unlock()

	closed.Store(0)
	r.awaitState(t, sources.Healthy, "")
	await(t, "it is read again", func() bool { return hostOf(t, r.get("a")) != "h0.example.com" })
}

// TestInstances_ReplacedByEachStream has a server that names others on each stream and never answers for the type.
func TestInstances_ReplacedByEachStream(t *testing.T) {
	for name, n := range map[string]int{"few": 2, "as many as there can be": names.MaxInstances} {
		t.Run(name, func(t *testing.T) {
			server := xdstest.ListenDelta(t)
			recorded := &claimed{}
			read(t, Settings{Mode: "delta", SubscribedResources: onlyEntries, Hops: recorded}, server.Address)
			for stream := range 5 {
				ids := make([]string, n)
				for i := range ids {
					ids[i] = names.Instance(fmt.Sprint(stream, i))
				}
				stream := server.Next()
				require.NoError(t, stream.SetHeader(metadata.Pairs(names.InstancesHeader, names.JoinInstances(ids))))
				stream.Receive()
				stream.Exchange(sentDelta(t))
				stream.End(errors.New("restart"))
			}
			recorded.mu.Lock()
			defer recorded.mu.Unlock()
			require.LessOrEqual(t, recorded.most, min(2*n, names.MaxInstances), "instances of earlier streams do not count")
		})
	}
}
