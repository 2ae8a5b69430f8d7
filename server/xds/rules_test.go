package xds

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

// The rules of the protocol that servers get wrong, one by one, over real gRPC.

func bothVariants(t *testing.T, f func(t *testing.T, w *fixture, dial func(string, ...dialOption) *client)) {
	t.Run("sotw", func(t *testing.T) {
		w := newFixture(t, Options{})
		f(t, w, w.sotw)
	})
	t.Run("delta", func(t *testing.T) {
		w := newFixture(t, Options{})
		f(t, w, w.delta)
	})
}

func TestFirstRequest_AcceptsAnyNonce(t *testing.T) {
	bothVariants(t, func(t *testing.T, w *fixture, dial func(string, ...dialOption) *client) {
		w.set(testType, "a")
		c := dial(testType)
		c.request(testType, "2026-01-01T00:00:00Z", nil)
		c.expect(testType, "a@1")
	})
}

func TestRule01SotWIgnoresStaleNonce(t *testing.T) {
	w := newFixture(t, Options{})
	w.set(EndpointURL, "a", "b")
	c := w.sotw(EndpointURL)
	c.ask(EndpointURL, "a")
	a := c.expect(EndpointURL, "a@1")
	c.request(EndpointURL, "stale", nil, "a", "b")
	c.silence()
	c.ack(a, "a", "b")
	c.expect(EndpointURL, "b@1")
}

func TestRule01StaleNonceStillSubscribesInDelta(t *testing.T) {
	w := newFixture(t, Options{})
	w.set(EndpointURL, "a", "b")
	c := w.delta(EndpointURL)
	c.ask(EndpointURL, "a")
	a := c.expect(EndpointURL, "a@1")
	c.request(EndpointURL, "stale", nil, "b")
	c.ack(a)
	c.expect(EndpointURL, "b@1")
}

func TestRule02NackRecordedWithoutResponse(t *testing.T) {
	bothVariants(t, func(t *testing.T, w *fixture, dial func(string, ...dialOption) *client) {
		w.set(testType, "a")
		c := dial(testType)
		c.ask(testType)
		c.nack(c.expect(testType, "a@1"), "cannot digest a")
		c.silence()
		var st TypeStatus
		eventually(t, func() bool { st = w.server.Clients()[0].Types[0]; return st.NackError != "" })
		require.Equal(t, "cannot digest a", st.NackError)
		require.False(t, st.Synced)
		require.Equal(t, "test-node", w.server.Clients()[0].Node.GetId())
		w.set(testType, "a@2")
		c.expectAck(testType, nil, "a@2")
		eventually(t, func() bool { return w.server.Clients()[0].Types[0].Synced })
		require.EqualValues(t, 2, w.server.Clients()[0].Types[0].Responses)
	})
}

func TestRule03VersionsPerTypePersistAcrossStreams(t *testing.T) {
	w := newFixture(t, Options{})
	w.set(testType, "a", "b")
	w.set(ClusterURL, "c")
	c := w.sotw(testType)
	c.ask(testType)
	a := c.expectAck(testType, nil, "a@1", "b@1")
	c.ask(ClusterURL)
	cl := c.expectAck(ClusterURL, nil, "c@1")
	require.NotEqual(t, a.version, cl.version)
	resumed := w.sotw(testType)
	require.NoError(t, resumed.send(&discoveryv3.DiscoveryRequest{TypeUrl: testType, VersionInfo: a.version}))
	resumed.silence()
	w.set(testType, "-b")
	resumed.expect(testType, "a@1")
}

func TestRule04SendsNewlyRequestedNames(t *testing.T) {
	t.Run("sotw", func(t *testing.T) {
		w := newFixture(t, Options{})
		w.set(EndpointURL, "a", "b")
		c := w.sotw(EndpointURL)
		c.ask(EndpointURL, "a", "b")
		a := c.expect(EndpointURL, "a@1", "b@1")
		c.ack(a, "a")
		c.silence()
		c.ack(a, "a", "b")
		c.expect(EndpointURL, "b@1")
	})
	t.Run("delta resends a name that is current", func(t *testing.T) {
		w := newFixture(t, Options{})
		w.set(EndpointURL, "a", "b")
		c := w.delta(EndpointURL)
		c.ask(EndpointURL, "a", "b")
		c.expectAck(EndpointURL, nil, "a@1", "b@1")
		c.ask(EndpointURL, "a")
		c.expectAck(EndpointURL, nil, "a@1")
		c.silence()
	})
}

func TestRule05WildcardInSotW(t *testing.T) {
	w := newFixture(t, Options{})
	w.set(ClusterURL, "a", "b")
	t.Run("no names after names unsubscribes", func(t *testing.T) {
		c := w.sotw(ClusterURL)
		c.ask(ClusterURL, "a")
		a := c.expect(ClusterURL, "a@1")
		c.ack(a)
		w.awaitSubscription(false, 0)
		w.set(ClusterURL, "a@2")
		c.silence()
		w.set(ClusterURL, "a@1")
	})
	t.Run("explicit wildcard is dropped by leaving it out", func(t *testing.T) {
		c := w.sotw(ClusterURL)
		c.ask(ClusterURL, "*", "a")
		a := c.expect(ClusterURL, "a@1", "b@1")
		c.ack(a, "a")
		c.expectAck(ClusterURL, []string{"a"}, "a@1")
		w.set(ClusterURL, "b@2")
		c.silence()
		w.set(ClusterURL, "a@2")
		a = c.expect(ClusterURL, "a@2")
		c.ack(a, "*")
		c.expect(ClusterURL, "a@2", "b@2")
	})
}

func TestRule05WildcardInDelta(t *testing.T) {
	w := newFixture(t, Options{})
	w.set(ClusterURL, "a", "b")
	t.Run("legacy wildcard stays when names are added", func(t *testing.T) {
		c := w.delta(ClusterURL)
		c.ask(ClusterURL)
		c.expectAck(ClusterURL, nil, "a@1", "b@1")
		c.ask(ClusterURL, "a")
		c.expectAck(ClusterURL, nil, "a@1")
		w.set(ClusterURL, "c")
		c.expectAck(ClusterURL, nil, "c@1")
		c.ask(ClusterURL, "-*")
		w.awaitSubscription(false, 1)
		w.set(ClusterURL, "-c", "b@2")
		c.silence()
		w.set(ClusterURL, "a@2")
		c.expectAck(ClusterURL, nil, "a@2")
		w.set(ClusterURL, "a@1", "b@1")
		c.expectAck(ClusterURL, nil, "a@1")
	})
	t.Run("explicit wildcard", func(t *testing.T) {
		c := w.delta(ClusterURL)
		c.ask(ClusterURL, "a")
		c.expectAck(ClusterURL, nil, "a@1")
		c.ask(ClusterURL, "*")
		c.expectAck(ClusterURL, nil, "a@1", "b@1")
	})
}

func TestRule06UnsubscribeUnderWildcardGetsResponse(t *testing.T) {
	w := newFixture(t, Options{})
	w.set(ClusterURL, "a")
	c := w.delta(ClusterURL)
	c.ask(ClusterURL, "*", "a", "x")
	c.expectAck(ClusterURL, nil, "a@1", "-x")
	c.ask(ClusterURL, "-a", "-x")
	c.expectAck(ClusterURL, nil, "a@1", "-x")
	named := w.delta(ClusterURL)
	named.ask(ClusterURL, "a")
	named.expectAck(ClusterURL, nil, "a@1")
	named.ask(ClusterURL, "-unknown", "-a")
	w.awaitSubscription(false, 0)
	w.set(ClusterURL, "a@2")
	named.silence()
}

func TestRule07FullStateInSotW(t *testing.T) {
	w := newFixture(t, Options{})
	for _, typ := range []string{ClusterURL, ListenerURL, testType} {
		w.set(typ, "a", "b")
		c := w.sotw(typ)
		c.ask(typ)
		c.expectAck(typ, nil, "a@1", "b@1")
		w.set(typ, "b@2")
		c.expectAck(typ, nil, "a@1", "b@2")
		w.set(typ, "-a")
		c.expectAck(typ, nil, "b@2")
		w.set(typ, "-b")
		c.expectAck(typ, nil)
		w.set(typ, "a", "b", "c")
		c.expect(typ, "a@1", "b@1", "c@1")
		named := w.sotw(typ)
		named.ask(typ, "a", "b")
		named.expectAck(typ, []string{"a", "b"}, "a@1", "b@1")
		w.set(typ, "c@2")
		named.silence()
		w.set(typ, "-a")
		named.expectAck(typ, []string{"a", "b"}, "b@1")
	}
}

func TestRule07PartialStateInSotW(t *testing.T) {
	w := newFixture(t, Options{})
	for _, typ := range []string{EndpointURL, RouteURL} {
		w.set(typ, "a", "b", "c")
		c := w.sotw(typ)
		c.ask(typ, "a", "b", "missing")
		names := []string{"a", "b", "missing"}
		c.expectAck(typ, names, "a@1", "b@1")
		w.set(typ, "b@2", "c@2")
		c.expectAck(typ, names, "b@2")
		w.set(typ, "-a")
		c.silence()
		w.set(typ, "missing")
		c.expectAck(typ, names, "missing@1")
	}
}

func TestRule08MissingNamesInDelta(t *testing.T) {
	w := newFixture(t, Options{})
	w.set(EndpointURL, "a")
	c := w.delta(EndpointURL)
	c.ask(EndpointURL, "a", "later")
	c.expectAck(EndpointURL, nil, "a@1", "-later")
	w.set(EndpointURL, "later")
	c.expectAck(EndpointURL, nil, "later@1")
	w.set(EndpointURL, "-later")
	c.expectAck(EndpointURL, nil, "-later")
}

func TestRule09InitialResourceVersions(t *testing.T) {
	w := newFixture(t, Options{})
	w.set(testType, "same", "newer@2", "new")
	c := w.delta(testType)
	initial := map[string]string{"same": "1", "newer": "1", "gone": "1"}
	require.NoError(t, c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: testType, InitialResourceVersions: initial}))
	a := c.expectAck(testType, nil, "newer@2", "new@1", "-gone")
	// Later messages with versions are not a reconnection.
	require.NoError(t, c.send(&discoveryv3.DeltaDiscoveryRequest{
		TypeUrl: testType, ResponseNonce: a.nonce, InitialResourceVersions: map[string]string{"gone": "1"},
	}))
	c.silence()
	named := w.delta(testType)
	require.NoError(t, named.send(&discoveryv3.DeltaDiscoveryRequest{
		TypeUrl: testType, InitialResourceVersions: initial, ResourceNamesSubscribe: []string{"same", "newer", "gone", "never"},
	}))
	named.expect(testType, "newer@2", "-gone", "-never")
}

func TestRule10EmptyFirstWildcardGetsResponse(t *testing.T) {
	bothVariants(t, func(t *testing.T, w *fixture, dial func(string, ...dialOption) *client) {
		w.set(testType)
		c := dial(testType)
		c.ask(testType)
		c.expectAck(testType, nil)
		c.silence()
	})
}

func TestRule11NoRepeatsAndNoResponseToAck(t *testing.T) {
	w := newFixture(t, Options{})
	w.set(EndpointURL, "a", "b")
	c := w.delta(EndpointURL)
	c.ask(EndpointURL, "*", "a", "a")
	c.expectAck(EndpointURL, nil, "a@1", "b@1")
	c.silence()
	s := w.sotw(EndpointURL)
	s.ask(EndpointURL, "a", "a")
	s.expectAck(EndpointURL, []string{"a", "a"}, "a@1")
	s.silence()
	w.set(EndpointURL, "a@1")
	s.silence()
	c.silence()
}

func TestRule12MakeBeforeBreak(t *testing.T) {
	types := []string{ClusterURL, EndpointURL, ListenerURL, RouteURL}
	bothVariants(t, func(t *testing.T, w *fixture, dial func(string, ...dialOption) *client) {
		for _, typ := range types {
			w.set(typ, "old")
		}
		c := dial(testType)
		for _, typ := range slices.Backward(types) { // asked for in the wrong order
			c.ask(typ, "*")
			c.expectAck(typ, []string{"*"}, "old@1")
		}
		// Hold the stream's look at the collections until all have changed.
		st := w.onlyStream()
		st.mu.Lock()
		for _, typ := range types {
			w.set(typ, "-old", "new")
		}
		st.mu.Unlock()
		var adds, removals []string
		note := func(list *[]string, typeURL string) {
			if !slices.Contains(*list, typeURL) {
				*list = append(*list, typeURL)
			}
		}
		for len(removals) < len(types) {
			a := c.next()
			c.ack(a, "*")
			if slices.Contains(a.puts, "new@1") {
				note(&adds, a.typeURL)
			}
			if slices.Contains(a.removed, "old") || !c.delta && !slices.Contains(a.puts, "old@1") {
				require.Len(t, adds, len(types), "removal before all was added")
				note(&removals, a.typeURL)
			}
		}
		require.Equal(t, types, adds)
		slices.Reverse(removals)
		require.Equal(t, types, removals)
		c.silence()
	})
}

func (w *fixture) onlyStream() *stream {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	for _, st := range w.server.streams {
		return st
	}
	require.FailNow(w.t, "no stream")
	return nil
}

func TestRule13EndpointsResentAfterCluster(t *testing.T) {
	bothVariants(t, func(t *testing.T, w *fixture, dial func(string, ...dialOption) *client) {
		w.set(ClusterURL, "a", "b")
		w.set(EndpointURL, "a", "b")
		c := dial(testType)
		c.ask(ClusterURL)
		c.expectAck(ClusterURL, nil, "a@1", "b@1")
		c.ask(EndpointURL, "a", "b")
		eds := c.expectAck(EndpointURL, []string{"a", "b"}, "a@1", "b@1")
		w.set(ClusterURL, "a@2")
		if c.delta {
			c.expectAck(ClusterURL, nil, "a@2")
		} else {
			c.expectAck(ClusterURL, nil, "a@2", "b@1")
		}
		resent := c.expect(EndpointURL, "a@1")
		require.Equal(t, eds.version, resent.version, "unchanged")
	})
}

func TestRule13AppliesAfterReconnect(t *testing.T) {
	w := newFixture(t, Options{})
	w.set(ClusterURL, "a@2", "b")
	w.set(EndpointURL, "a", "b")
	c := w.delta(testType)
	versions := map[string]string{"a": "1", "b": "1"}
	require.NoError(t, c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: ClusterURL, InitialResourceVersions: versions}))
	c.expectAck(ClusterURL, nil, "a@2")
	require.NoError(t, c.send(&discoveryv3.DeltaDiscoveryRequest{
		TypeUrl: EndpointURL, InitialResourceVersions: versions, ResourceNamesSubscribe: []string{"a", "b"},
	}))
	c.expect(EndpointURL, "a@1")
}

func TestRule15NamedSotWOfGRPCClients(t *testing.T) {
	w := newFixture(t, Options{})
	w.set(ListenerURL, "svc", "other")
	c := w.sotw(ListenerURL)
	c.ask(ListenerURL, "svc")
	c.expectAck(ListenerURL, []string{"svc"}, "svc@1")
	w.set(ListenerURL, "-svc")
	c.expectAck(ListenerURL, []string{"svc"})
}

func TestRule16DeltaChunkedSotWWhole(t *testing.T) {
	w := newFixture(t, Options{})
	var commit Commit
	const n, kib = 600, 10
	for i := range n {
		commit.Put = append(commit.Put, thing(t, fmt.Sprintf("n%04d", i), "1", strings.Repeat("x", kib<<10)))
	}
	w.coll(testType).Apply(commit)
	w.coll(testType).MarkSynced()
	collect := func(c *client, want int) (responses int) {
		seen := map[string]bool{}
		for len(seen) < want {
			a := c.next()
			require.LessOrEqual(t, a.size, 4<<20-1024)
			c.ack(a)
			responses++
			for _, p := range a.puts {
				require.False(t, seen[p], "%s twice", p)
				seen[p] = true
			}
			require.Equal(t, len(seen) == want, a.version != "", "only the last one says that the client is at a version")
		}
		return responses
	}
	c := w.delta(testType)
	c.ask(testType)
	require.Greater(t, collect(c, n), 2)
	commit = Commit{Remove: []string{"n0000"}}
	for i := range n {
		commit.Put = append(commit.Put, thing(t, fmt.Sprintf("m%04d", i), "1", strings.Repeat("x", kib<<10)))
	}
	w.coll(testType).Apply(commit)
	require.Greater(t, collect(c, n), 2)

	sotw := w.conn()
	defer func() { require.NoError(t, sotw.Close()) }()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(sotw).StreamAggregatedResources(ctx, grpc.MaxCallRecvMsgSize(64<<20))
	require.NoError(t, err)
	require.NoError(t, stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: testType}))
	m, err := stream.Recv()
	require.NoError(t, err)
	require.Len(t, m.Resources, 2*n-1)
}

// A client that does not read fills its window and then blocks. No other client notices, and when it reads again it gets the
// newest state and not the ones that it missed.
func TestRule17StuckClientDelaysNoOtherClient(t *testing.T) {
	w := newFixture(t, Options{AckTimeout: time.Millisecond})
	w.set(testType, "small")
	conn := w.conn()
	defer func() { require.NoError(t, conn.Close()) }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stuck, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	require.NoError(t, err)
	require.NoError(t, stuck.Send(&discoveryv3.DiscoveryRequest{TypeUrl: testType}))

	c := w.delta(testType)
	c.ask(testType)
	c.expectAck(testType, nil, "small@1")
	const changes = 200
	for i := range changes { // 20 MB for the one that does not read
		w.coll(testType).Apply(Commit{Put: []*Entry{thing(t, "big", fmt.Sprint(i), strings.Repeat("x", 100<<10))}})
		c.expectAck(testType, nil, fmt.Sprintf("big@%d", i))
	}
	responses := 0
	for {
		m, err := stuck.Recv()
		require.NoError(t, err)
		responses++
		require.NoError(t, stuck.Send(&discoveryv3.DiscoveryRequest{TypeUrl: testType, ResponseNonce: m.Nonce}))
		if len(m.Resources) == 2 && strings.HasPrefix(bodyText(t, m.Resources[0]), fmt.Sprintf("big@%d", changes-1)) {
			break
		}
	}
	require.Less(t, responses, changes/2)
}

func TestUnsyncedType_SendsNoResponse(t *testing.T) {
	bothVariants(t, func(t *testing.T, w *fixture, dial func(string, ...dialOption) *client) {
		w.coll(testType).Apply(Commit{Put: []*Entry{thing(t, "a", "1", "")}})
		c := dial(testType)
		c.ask(testType)
		c.silence()
		w.coll(testType).MarkSynced()
		c.expect(testType, "a@1")
	})
}

func TestChangesCoalesceUntilAcknowledged(t *testing.T) {
	bothVariants(t, func(t *testing.T, w *fixture, dial func(string, ...dialOption) *client) {
		w.set(testType, "a")
		c := dial(testType)
		c.ask(testType)
		first := c.expect(testType, "a@1")
		for i := range 10 {
			w.set(testType, fmt.Sprintf("a@%d", i+2))
		}
		c.silence()
		c.ack(first)
		c.expect(testType, "a@11")
	})
}

func TestClientWithoutAcks_StillReceivesChanges(t *testing.T) {
	w := newFixture(t, Options{AckTimeout: 10 * time.Millisecond})
	w.set(testType, "a")
	c := w.sotw(testType)
	c.ask(testType)
	c.expect(testType, "a@1")
	w.set(testType, "a@2")
	c.expect(testType, "a@2")
}

func TestTypeURL_Echoed(t *testing.T) {
	bothVariants(t, func(t *testing.T, w *fixture, dial func(string, ...dialOption) *client) {
		c := dial(testType)
		for _, typ := range []string{"g/v1/K", "g/v1beta1/K"} {
			w.set(typ)
			c.ask(typ)
			c.expect(typ)
		}
	})
}

func TestSingleTypeServices(t *testing.T) {
	bothVariants(t, func(t *testing.T, w *fixture, dial func(string, ...dialOption) *client) {
		for _, typ := range []string{ClusterURL, EndpointURL} {
			w.set(typ, "a")
			c := dial(typ, single)
			c.ask("", "a") // the service says the type
			c.expect(typ, "a@1")
			listeners := dial(typ, single)
			listeners.ask(ListenerURL)
			require.Equal(t, codes.InvalidArgument, grpcstatus.Code(listeners.ended()))
		}
	})
}

func TestRefusals(t *testing.T) {
	bothVariants(t, func(t *testing.T, w *fixture, dial func(string, ...dialOption) *client) {
		c := dial(testType)
		c.ask("")
		require.Equal(t, codes.InvalidArgument, grpcstatus.Code(c.ended()))
		c = dial(testType)
		c.ask("refused")
		require.Equal(t, codes.PermissionDenied, grpcstatus.Code(c.ended()))
	})
}

func TestDrain(t *testing.T) {
	w := newFixture(t, Options{})
	w.set(testType, "a")
	c := w.delta(testType)
	c.ask(testType)
	c.expect(testType, "a@1")
	w.server.Drain(context.Background(), 0)
	require.Equal(t, codes.Unavailable, grpcstatus.Code(c.ended()))
	late := w.delta(testType)
	require.Equal(t, codes.Unavailable, grpcstatus.Code(late.ended()))
}

func TestExplicitVersions(t *testing.T) {
	w := newFixture(t, Options{})
	w.coll(testType).Apply(Commit{Put: []*Entry{thing(t, "a", "1", "")}, Version: "7"})
	w.coll(testType).MarkSynced()
	c, d := w.sotw(testType), w.delta(testType)
	c.ask(testType)
	d.ask(testType)
	require.Equal(t, "7", c.expectAck(testType, nil, "a@1").version)
	require.Equal(t, "7", d.expectAck(testType, nil, "a@1").version)
	w.coll(testType).Apply(Commit{Put: []*Entry{thing(t, "a", "2", "")}, Version: "8"})
	require.Equal(t, "8", c.expect(testType, "a@2").version)
	require.Equal(t, "8", d.expect(testType, "a@2").version)
}

func TestClientClose_EndsStream(t *testing.T) {
	w := newFixture(t, Options{})
	w.set(testType, "a")
	c := w.sotw(testType)
	c.ask(testType)
	c.expect(testType, "a@1")
	require.NoError(t, c.close())
	require.Error(t, c.ended()) // EOF
	eventually(t, func() bool { return len(w.server.Clients()) == 0 })
	require.Empty(t, w.coll(testType).wakeups)
}

// TestHalfClosedStream_EndsAfterItsAnswers checks that requests before the end of the client's half are answered as by
// istiod, without acknowledgements, and that changes are not.
func TestHalfClosedStream_EndsAfterItsAnswers(t *testing.T) {
	types := []string{ClusterURL, EndpointURL, ListenerURL, RouteURL}
	for name, dial := range map[string]func(*fixture) *client{
		"sotw": func(w *fixture) *client { return w.sotw("") }, "delta": func(w *fixture) *client { return w.delta("") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, Options{AckTimeout: time.Hour})
			c := dial(w)
			for _, url := range types {
				c.ask(url, "a")
			}
			require.NoError(t, c.close())
			c.silence()
			for _, url := range types {
				w.set(url, "a")
			}
			answered := make(map[string][]string)
			for range types {
				a := c.next()
				answered[a.typeURL] = a.puts
			}
			for _, url := range types {
				require.Equal(t, []string{"a@1"}, answered[url], url)
			}
			require.ErrorIs(t, c.ended(), io.EOF)
			require.Empty(t, c.answers)

			if name == "sotw" {
				return // its only response would be too large for the client
			}
			w.large(testType)
			c = dial(w)
			c.ask(testType)
			require.NoError(t, c.close())
			require.ErrorIs(t, c.ended(), io.EOF)
			for count := 0; count < 3; {
				count += len(c.next().puts)
			}
		})
	}
}
