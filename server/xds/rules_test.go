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
	client := w.sotw(EndpointURL)
	client.ask(EndpointURL, "a")
	a := client.expect(EndpointURL, "a@1")
	client.request(EndpointURL, "stale", nil, "a", "b")
	client.silence()
	client.ack(a, "a", "b")
	client.expect(EndpointURL, "b@1")
}

func TestRule01StaleNonceStillSubscribesInDelta(t *testing.T) {
	w := newFixture(t, Options{})
	w.set(EndpointURL, "a", "b")
	client := w.delta(EndpointURL)
	client.ask(EndpointURL, "a")
	a := client.expect(EndpointURL, "a@1")
	client.request(EndpointURL, "stale", nil, "b")
	client.ack(a)
	client.expect(EndpointURL, "b@1")
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
	fixture := newFixture(t, Options{})
	fixture.set(testType, "a", "b")
	fixture.set(ClusterURL, "c")
	client := fixture.sotw(testType)
	client.ask(testType)
	answer := client.expectAck(testType, nil, "a@1", "b@1")
	client.ask(ClusterURL)
	cl := client.expectAck(ClusterURL, nil, "c@1")
	require.NotEqual(t, answer.version, cl.version)
	resumed := fixture.sotw(testType)
	require.NoError(t, resumed.send(&discoveryv3.DiscoveryRequest{TypeUrl: testType, VersionInfo: answer.version}))
	resumed.silence()
	fixture.set(testType, "-b")
	resumed.expect(testType, "a@1")
}

func TestRule04SendsNewlyRequestedNames(t *testing.T) {
	t.Run("sotw", func(t *testing.T) {
		w := newFixture(t, Options{})
		w.set(EndpointURL, "a", "b")
		client := w.sotw(EndpointURL)
		client.ask(EndpointURL, "a", "b")
		a := client.expect(EndpointURL, "a@1", "b@1")
		client.ack(a, "a")
		client.silence()
		client.ack(a, "a", "b")
		client.expect(EndpointURL, "b@1")
	})
	t.Run("delta resends a name that is current", func(t *testing.T) {
		w := newFixture(t, Options{})
		w.set(EndpointURL, "a", "b")
		client := w.delta(EndpointURL)
		client.ask(EndpointURL, "a", "b")
		client.expectAck(EndpointURL, nil, "a@1", "b@1")
		client.ask(EndpointURL, "a")
		client.expectAck(EndpointURL, nil, "a@1")
		client.silence()
	})
}

func TestRule05WildcardInSotW(t *testing.T) {
	fixture := newFixture(t, Options{})
	fixture.set(ClusterURL, "a", "b")
	t.Run("no names after names unsubscribes", func(t *testing.T) {
		client := fixture.sotw(ClusterURL)
		client.ask(ClusterURL, "a")
		a := client.expect(ClusterURL, "a@1")
		client.ack(a)
		fixture.awaitSubscription(false, 0)
		fixture.set(ClusterURL, "a@2")
		client.silence()
		fixture.set(ClusterURL, "a@1")
	})
	t.Run("explicit wildcard is dropped by leaving it out", func(t *testing.T) {
		client := fixture.sotw(ClusterURL)
		client.ask(ClusterURL, "*", "a")
		answer := client.expect(ClusterURL, "a@1", "b@1")
		client.ack(answer, "a")
		client.expectAck(ClusterURL, []string{"a"}, "a@1")
		fixture.set(ClusterURL, "b@2")
		client.silence()
		fixture.set(ClusterURL, "a@2")
		answer = client.expect(ClusterURL, "a@2")
		client.ack(answer, "*")
		client.expect(ClusterURL, "a@2", "b@2")
	})
}

func TestRule05WildcardInDelta(t *testing.T) {
	fixture := newFixture(t, Options{})
	fixture.set(ClusterURL, "a", "b")
	t.Run("legacy wildcard stays when names are added", func(t *testing.T) {
		client := fixture.delta(ClusterURL)
		client.ask(ClusterURL)
		client.expectAck(ClusterURL, nil, "a@1", "b@1")
		client.ask(ClusterURL, "a")
		client.expectAck(ClusterURL, nil, "a@1")
		fixture.set(ClusterURL, "c")
		client.expectAck(ClusterURL, nil, "c@1")
		client.ask(ClusterURL, "-*")
		fixture.awaitSubscription(false, 1)
		fixture.set(ClusterURL, "-c", "b@2")
		client.silence()
		fixture.set(ClusterURL, "a@2")
		client.expectAck(ClusterURL, nil, "a@2")
		fixture.set(ClusterURL, "a@1", "b@1")
		client.expectAck(ClusterURL, nil, "a@1")
	})
	t.Run("explicit wildcard", func(t *testing.T) {
		client := fixture.delta(ClusterURL)
		client.ask(ClusterURL, "a")
		client.expectAck(ClusterURL, nil, "a@1")
		client.ask(ClusterURL, "*")
		client.expectAck(ClusterURL, nil, "a@1", "b@1")
	})
}

func TestRule06UnsubscribeUnderWildcardGetsResponse(t *testing.T) {
	fixture := newFixture(t, Options{})
	fixture.set(ClusterURL, "a")
	client := fixture.delta(ClusterURL)
	client.ask(ClusterURL, "*", "a", "x")
	client.expectAck(ClusterURL, nil, "a@1", "-x")
	client.ask(ClusterURL, "-a", "-x")
	client.expectAck(ClusterURL, nil, "a@1", "-x")
	named := fixture.delta(ClusterURL)
	named.ask(ClusterURL, "a")
	named.expectAck(ClusterURL, nil, "a@1")
	named.ask(ClusterURL, "-unknown", "-a")
	fixture.awaitSubscription(false, 0)
	fixture.set(ClusterURL, "a@2")
	named.silence()
}

func TestRule07FullStateInSotW(t *testing.T) {
	fixture := newFixture(t, Options{})
	for _, typ := range []string{ClusterURL, ListenerURL, testType} {
		fixture.set(typ, "a", "b")
		client := fixture.sotw(typ)
		client.ask(typ)
		client.expectAck(typ, nil, "a@1", "b@1")
		fixture.set(typ, "b@2")
		client.expectAck(typ, nil, "a@1", "b@2")
		fixture.set(typ, "-a")
		client.expectAck(typ, nil, "b@2")
		fixture.set(typ, "-b")
		client.expectAck(typ, nil)
		fixture.set(typ, "a", "b", "c")
		client.expect(typ, "a@1", "b@1", "c@1")
		named := fixture.sotw(typ)
		named.ask(typ, "a", "b")
		named.expectAck(typ, []string{"a", "b"}, "a@1", "b@1")
		fixture.set(typ, "c@2")
		named.silence()
		fixture.set(typ, "-a")
		named.expectAck(typ, []string{"a", "b"}, "b@1")
	}
}

func TestRule07PartialStateInSotW(t *testing.T) {
	fixture := newFixture(t, Options{})
	for _, typ := range []string{EndpointURL, RouteURL} {
		fixture.set(typ, "a", "b", "c")
		client := fixture.sotw(typ)
		client.ask(typ, "a", "b", "missing")
		names := []string{"a", "b", "missing"}
		client.expectAck(typ, names, "a@1", "b@1")
		fixture.set(typ, "b@2", "c@2")
		client.expectAck(typ, names, "b@2")
		fixture.set(typ, "-a")
		client.silence()
		fixture.set(typ, "missing")
		client.expectAck(typ, names, "missing@1")
	}
}

func TestRule08MissingNamesInDelta(t *testing.T) {
	fixture := newFixture(t, Options{})
	fixture.set(EndpointURL, "a")
	client := fixture.delta(EndpointURL)
	client.ask(EndpointURL, "a", "later")
	client.expectAck(EndpointURL, nil, "a@1", "-later")
	fixture.set(EndpointURL, "later")
	client.expectAck(EndpointURL, nil, "later@1")
	fixture.set(EndpointURL, "-later")
	client.expectAck(EndpointURL, nil, "-later")
}

func TestRule09InitialResourceVersions(t *testing.T) {
	fixture := newFixture(t, Options{})
	fixture.set(testType, "same", "newer@2", "new")
	c := fixture.delta(testType)
	initial := map[string]string{"same": "1", "newer": "1", "gone": "1"}
	require.NoError(t, c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: testType, InitialResourceVersions: initial}))
	a := c.expectAck(testType, nil, "newer@2", "new@1", "-gone")
	// Later messages with versions are not a reconnection.
	require.NoError(t, c.send(&discoveryv3.DeltaDiscoveryRequest{
		TypeUrl: testType, ResponseNonce: a.nonce, InitialResourceVersions: map[string]string{"gone": "1"},
	}))
	c.silence()
	named := fixture.delta(testType)
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
	fixture := newFixture(t, Options{})
	fixture.set(EndpointURL, "a", "b")
	client := fixture.delta(EndpointURL)
	client.ask(EndpointURL, "*", "a", "a")
	client.expectAck(EndpointURL, nil, "a@1", "b@1")
	client.silence()
	s := fixture.sotw(EndpointURL)
	s.ask(EndpointURL, "a", "a")
	s.expectAck(EndpointURL, []string{"a", "a"}, "a@1")
	s.silence()
	fixture.set(EndpointURL, "a@1")
	s.silence()
	client.silence()
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
		stream := w.onlyStream()
		stream.mu.Lock()
		for _, typ := range types {
			w.set(typ, "-old", "new")
		}
		stream.mu.Unlock()
		var adds, removals []string
		note := func(list *[]string, typeURL string) {
			if !slices.Contains(*list, typeURL) {
				*list = append(*list, typeURL)
			}
		}
		for len(removals) < len(types) {
			answer := c.next()
			c.ack(answer, "*")
			if slices.Contains(answer.puts, "new@1") {
				note(&adds, answer.typeURL)
			}
			if slices.Contains(answer.removed, "old") || !c.delta && !slices.Contains(answer.puts, "old@1") {
				require.Len(t, adds, len(types), "removal before all was added")
				note(&removals, answer.typeURL)
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
		answer := c.expectAck(EndpointURL, []string{"a", "b"}, "a@1", "b@1")
		w.set(ClusterURL, "a@2")
		if c.delta {
			c.expectAck(ClusterURL, nil, "a@2")
		} else {
			c.expectAck(ClusterURL, nil, "a@2", "b@1")
		}
		resent := c.expect(EndpointURL, "a@1")
		require.Equal(t, answer.version, resent.version, "unchanged")
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
	fixture := newFixture(t, Options{})
	fixture.set(ListenerURL, "svc", "other")
	client := fixture.sotw(ListenerURL)
	client.ask(ListenerURL, "svc")
	client.expectAck(ListenerURL, []string{"svc"}, "svc@1")
	fixture.set(ListenerURL, "-svc")
	client.expectAck(ListenerURL, []string{"svc"})
}

func TestRule16DeltaChunkedSotWWhole(t *testing.T) {
	fixture := newFixture(t, Options{})
	var commit Commit
	const n, kib = 600, 10
	for i := range n {
		commit.Put = append(commit.Put, thing(t, fmt.Sprintf("n%04d", i), "1", strings.Repeat("x", kib<<10)))
	}
	fixture.coll(testType).Apply(commit)
	fixture.coll(testType).MarkSynced()
	collect := func(c *client, want int) (responses int) {
		seen := map[string]bool{}
		for len(seen) < want {
			answer := c.next()
			require.LessOrEqual(t, answer.size, 4<<20-1024)
			c.ack(answer)
			responses++
			for _, p := range answer.puts {
				require.False(t, seen[p], "%s twice", p)
				seen[p] = true
			}
			require.Equal(t, len(seen) == want, answer.version != "", "only the last one says that the client is at a version")
		}
		return responses
	}
	c := fixture.delta(testType)
	c.ask(testType)
	require.Greater(t, collect(c, n), 2)
	commit = Commit{Remove: []string{"n0000"}}
	for i := range n {
		commit.Put = append(commit.Put, thing(t, fmt.Sprintf("m%04d", i), "1", strings.Repeat("x", kib<<10)))
	}
	fixture.coll(testType).Apply(commit)
	require.Greater(t, collect(c, n), 2)

	sotw := fixture.conn()
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
	fixture := newFixture(t, Options{AckTimeout: time.Millisecond})
	fixture.set(testType, "small")
	conn := fixture.conn()
	defer func() { require.NoError(t, conn.Close()) }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stuck, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	require.NoError(t, err)
	require.NoError(t, stuck.Send(&discoveryv3.DiscoveryRequest{TypeUrl: testType}))

	client := fixture.delta(testType)
	client.ask(testType)
	client.expectAck(testType, nil, "small@1")
	const changes = 200
	for i := range changes { // 20 MB for the one that does not read
		fixture.coll(testType).Apply(Commit{Put: []*Entry{thing(t, "big", fmt.Sprint(i), strings.Repeat("x", 100<<10))}})
		client.expectAck(testType, nil, fmt.Sprintf("big@%d", i))
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
	fixture := newFixture(t, Options{AckTimeout: 10 * time.Millisecond})
	fixture.set(testType, "a")
	client := fixture.sotw(testType)
	client.ask(testType)
	client.expect(testType, "a@1")
	fixture.set(testType, "a@2")
	client.expect(testType, "a@2")
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
	fixture := newFixture(t, Options{})
	fixture.set(testType, "a")
	client := fixture.delta(testType)
	client.ask(testType)
	client.expect(testType, "a@1")
	fixture.server.Drain(context.Background(), 0)
	require.Equal(t, codes.Unavailable, grpcstatus.Code(client.ended()))
	late := fixture.delta(testType)
	require.Equal(t, codes.Unavailable, grpcstatus.Code(late.ended()))
}

func TestExplicitVersions(t *testing.T) {
	fixture := newFixture(t, Options{})
	fixture.coll(testType).Apply(Commit{Put: []*Entry{thing(t, "a", "1", "")}, Version: "7"})
	fixture.coll(testType).MarkSynced()
	client, d := fixture.sotw(testType), fixture.delta(testType)
	client.ask(testType)
	d.ask(testType)
	require.Equal(t, "7", client.expectAck(testType, nil, "a@1").version)
	require.Equal(t, "7", d.expectAck(testType, nil, "a@1").version)
	fixture.coll(testType).Apply(Commit{Put: []*Entry{thing(t, "a", "2", "")}, Version: "8"})
	require.Equal(t, "8", client.expect(testType, "a@2").version)
	require.Equal(t, "8", d.expect(testType, "a@2").version)
}

func TestClientClose_EndsStream(t *testing.T) {
	fixture := newFixture(t, Options{})
	fixture.set(testType, "a")
	client := fixture.sotw(testType)
	client.ask(testType)
	client.expect(testType, "a@1")
	require.NoError(t, client.close())
	require.Error(t, client.ended()) // EOF
	eventually(t, func() bool { return len(fixture.server.Clients()) == 0 })
	require.Empty(t, fixture.coll(testType).wakeups)
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
