package xds

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"tributary/adsc"
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

func TestLoopsAreRefused(t *testing.T) {
	t.Run("with itself", func(t *testing.T) {
		a := newLooped(t, "a")
		a.read(t, a)
		await(t, "it is refused", func() bool { return a.refused() != "" })
		require.Contains(t, a.refused(), "a loop: "+a.server.address+" reads from this tributary")
		require.False(t, a.reader.status().Synced)
		require.Zero(t, a.reader.table.Snapshot().Len(), "nothing of it was taken")
	})
	t.Run("of two", func(t *testing.T) {
		a, b := newLooped(t, "a"), newLooped(t, "b")
		a.read(t, b)
		await(t, "a reads", func() bool { return a.reader.table.Synced() })
		b.read(t, a)
		await(t, "it is refused", func() bool { return b.refused() != "" })
		require.Empty(t, a.refused(), "one of them goes on")

		a.reader.stop()
		await(t, "the loop is gone", func() bool { return b.reader.table.Synced() && b.refused() == "" })
	})
	t.Run("of four", func(t *testing.T) {
		all := []*looped{newLooped(t, "a"), newLooped(t, "b"), newLooped(t, "c"), newLooped(t, "d")}
		for i, l := range slices.Backward(all) { // each reads from the next
			l.read(t, all[(i+1)%len(all)])
			await(t, "it reads, or is refused", func() bool { return l.reader.table.Synced() || l.refused() != "" })
		}
		await(t, "one of them is refused", func() bool {
			return slices.ContainsFunc(all, func(l *looped) bool { return l.refused() != "" })
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

// TestALoopIsNoticedWhenItIsClosedElsewhere has the server say that it reads from us when it has been read from for a while.
func TestALoopIsNoticedWhenItIsClosedElsewhere(t *testing.T) {
	us, above := newLooped(t, "us"), newLooped(t, "above")
	us.read(t, above)
	await(t, "it reads", func() bool { return us.reader.table.Synced() })
	source := new(int)
	above.hops.Reads(source, []string{us.hops.Self()})
	await(t, "it is refused", func() bool { return us.refused() != "" })
	above.hops.Reads(source, nil)
	us.reader.awaitState(t, sources.Healthy, "")
}

// TestNoClientCanCutUsOffFromOurUpstream has clients claim what they like about who reads from whom.
func TestNoClientCanCutUsOffFromOurUpstream(t *testing.T) {
	above, us := newLooped(t, "above"), newLooped(t, "us")
	above.table.Apply([]*resource.Resource{entry(t, "a", "a.example.com")}, nil)
	us.read(t, above)
	await(t, "it is read", func() bool { return us.reader.table.Synced() })

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
			Addresses: []string{us.server.address}, Mode: adsc.Delta, Log: slog.New(slog.DiscardHandler),
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
			require.FailNow(t, "an honest answer is owed to everybody")
		}
	}
	// Whatever came of it has come of it when changes have gone all the way several times.
	for i := range 20 {
		name := fmt.Sprintf("b%d", i)
		above.table.Apply([]*resource.Resource{entry(t, name, name+".example.com")}, nil)
		await(t, "it is read on", func() bool { return us.reader.table.Snapshot().Get(key(name)) != nil })
	}
	require.Equal(t, sources.Healthy, us.reader.status().State, us.reader.status().Message)
	for _, c := range above.server.engine.Clients() {
		require.Less(t, proto.Size(c.Node), 1000, "what we say of ourselves")
	}
}
