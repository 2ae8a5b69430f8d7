package xds

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"tributary/server/xds/wire"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

// Combinations of rules of the protocol.

// together makes changes while the only stream does not look.
func (w *fixture) together(change func()) {
	st := w.onlyStream()
	st.mu.Lock()
	defer st.mu.Unlock()
	change()
}

// A client by name that acknowledges each response gets the removals and the changes of a later type, and no further
// responses.
func TestNamedRemoval_WithChangeOfLaterType(t *testing.T) {
	fixture := newFixture(t, Options{})
	fixture.set(ClusterURL, "a", "b")
	fixture.set(EndpointURL, "a", "b")
	client := fixture.sotw(ClusterURL)
	clusterNames := []string{"a", "b"}
	client.ask(ClusterURL, clusterNames...)
	client.expectAck(ClusterURL, clusterNames, "a@1", "b@1")
	client.ask(EndpointURL, clusterNames...)
	client.expectAck(EndpointURL, clusterNames, "a@1", "b@1")
	fixture.together(func() {
		fixture.set(ClusterURL, "-b")
		fixture.set(EndpointURL, "a@2")
	})
	client.expectAck(EndpointURL, clusterNames, "a@2")
	client.expectAck(ClusterURL, clusterNames, "a@1")
	client.silence()
}

func TestWildcardAfterNames_SendsRemovals(t *testing.T) {
	fixture := newFixture(t, Options{})
	fixture.set(testType, "a", "b", "c")
	client := fixture.delta(testType)
	client.ask(testType, "a", "b")
	client.expectAck(testType, nil, "a@1", "b@1")
	fixture.together(func() {
		fixture.set(testType, "-a")
		st := fixture.onlyStream()
		st.apply(st.types[testType], &wire.Request{Delta: true, TypeURL: testType, Subscribe: []string{"*"}}, false, time.Now())
		st.wakeup.notify()
	})
	client.expectAck(testType, nil, "-a", "b@1", "c@1")
	client.silence()
}

func TestResumedStream_NamesChangeBeforeFirstResponse(t *testing.T) {
	resume := func(c *client, initial map[string]string, names ...string) {
		require.NoError(c.t, c.send(&discoveryv3.DeltaDiscoveryRequest{
			TypeUrl: testType, InitialResourceVersions: initial, ResourceNamesSubscribe: names,
		}))
	}
	t.Run("dropped and asked for again", func(t *testing.T) {
		fixture := newFixture(t, Options{})
		c := fixture.delta(testType)
		resume(c, map[string]string{"a": "1"}, "a")
		c.ask(testType, "-a")
		c.ask(testType, "a")
		c.ask(testType, "b")
		fixture.awaitSubscription(false, 2)
		fixture.set(testType, "a", "b")
		c.expectAck(testType, nil, "a@1", "b@1")
		c.silence()
	})
	t.Run("dropped under a wildcard", func(t *testing.T) {
		fixture := newFixture(t, Options{})
		c := fixture.delta(testType)
		resume(c, map[string]string{"a": "1", "b": "1"})
		c.ask(testType, "-a")
		c.ask(testType, "x") // answered in order, so that the one before it was taken
		fixture.awaitSubscription(true, 1)
		fixture.set(testType, "a", "b")
		c.expectAck(testType, nil, "a@1", "-x")
		c.silence()
	})
}

func TestNack_RecordedForAnyChunk(t *testing.T) {
	fixture := newFixture(t, Options{})
	var commit Commit
	for i := range 60 {
		commit.Put = append(commit.Put, thing(t, fmt.Sprintf("n%04d", i), "1", strings.Repeat("x", 100<<10)))
	}
	fixture.coll(testType).Apply(commit)
	fixture.coll(testType).MarkSynced()
	client := fixture.delta(testType)
	client.ask(testType)
	var chunks []answer
	for len(chunks) == 0 || chunks[len(chunks)-1].version == "" {
		chunks = append(chunks, client.next())
	}
	require.Greater(t, len(chunks), 2)
	client.nack(chunks[0], "cannot digest the first")
	for _, chunk := range chunks[1:] {
		client.ack(chunk)
	}
	status := func() TypeStatus { return fixture.server.Clients()[0].Types[0] }
	eventually(t, func() bool { return status().AckedNonce == chunks[len(chunks)-1].nonce })
	require.Equal(t, "cannot digest the first", status().NackError)
	require.Equal(t, chunks[0].nonce, status().NackNonce)
	require.EqualValues(t, 1, status().Nacks)
	require.False(t, status().Synced)
	require.Len(t, status().Rejected, len(chunks[0].puts), "entries of the first chunk")
	var next []string
	for _, r := range status().Rejected {
		next = append(next, r.Name+"@2")
	}
	fixture.set(testType, next...)
	client.expectAck(testType, nil, next...)
	eventually(t, func() bool { return status().Synced })
}

func TestResumedStream_WithoutChangesIsSynced(t *testing.T) {
	w := newFixture(t, Options{})
	w.set(testType, "a")
	version := w.coll(testType).Version()
	c := w.sotw(testType)
	require.NoError(t, c.send(&discoveryv3.DiscoveryRequest{TypeUrl: testType, VersionInfo: version}))
	eventually(t, func() bool {
		cs := w.server.Clients()
		return len(cs) == 1 && len(cs[0].Types) == 1 && cs[0].Types[0].Synced
	})
	d := w.delta(testType)
	require.NoError(t, d.send(&discoveryv3.DeltaDiscoveryRequest{
		TypeUrl: testType, InitialResourceVersions: map[string]string{"a": "1"}, ResourceNamesSubscribe: []string{"a"},
	}))
	eventually(t, func() bool {
		cs := w.server.Clients()
		return len(cs) == 2 && len(cs[1].Types) == 1 && cs[1].Types[0].Synced
	})
	require.False(t, slices.ContainsFunc(w.server.Clients(), func(c ClientStatus) bool { return c.Types[0].Responses > 0 }))
}

// Answers to requests do not have changes that a debounce holds back, either.
func TestDebounce_AppliesToRequestedResponses(t *testing.T) {
	bothVariants(t, func(t *testing.T, w *fixture, dial func(string, ...dialOption) *client) {
		w.mu.Lock()
		w.colls[testType] = NewCollection(TypeOf(testType), Debounce{Quiet: time.Hour})
		w.mu.Unlock()
		w.set(testType, "a")
		c := dial(testType)
		c.ask(testType)
		c.expectAck(testType, nil, "a@1")
		w.set(testType, "a@2")
		c.request(testType, "no nonce of ours", nil)
		otherClient := dial(testType)
		otherClient.ask(testType)
		otherClient.expectAck(testType, nil, "a@1")
		c.silence()
		otherClient.silence()
	})
}

func TestDebounce(t *testing.T) {
	w := newFixture(t, Options{})
	w.colls[testType] = NewCollection(TypeOf(testType), Debounce{Quiet: 20 * time.Millisecond, Max: 60 * time.Millisecond})
	w.set(testType, "a")
	client := w.delta(testType)
	client.ask(testType)
	client.expectAck(testType, nil, "a@1")
	const commits = 100
	for i := range commits {
		w.set(testType, fmt.Sprintf("a@%d", i+2))
		time.Sleep(time.Millisecond) // the test is about continuous commits
	}
	responses := 0
	for a := (answer{}); !slices.Contains(a.puts, fmt.Sprintf("a@%d", commits+1)); responses++ {
		a = client.next()
		client.ack(a)
	}
	require.Greater(t, responses, 1, "the longest delay counts")
	require.Less(t, responses, commits/4)
	client.silence()
}

// nilCatalog breaks its contract.
type nilCatalog struct{}

func (nilCatalog) Collection(context.Context, *corev3.Node, string) (*Collection, func(), error) {
	return nil, nil, nil
}

func TestCatalogWithoutCollection_EndsStream(t *testing.T) {
	w := newFixture(t, Options{})
	w.server.catalog = nilCatalog{}
	c := w.sotw(testType)
	c.ask(testType)
	require.Equal(t, codes.Internal, grpcstatus.Code(c.ended()))
}

// swap replaces cluster old by new in one commit: the route, the cluster, its endpoints.
func (w *fixture) swap(t *testing.T, old, new string, n int) {
	put := func(name, version string) *Commit { return &Commit{Put: []*Entry{thing(t, name, version, "")}} }
	clusters := put(new, "1")
	clusters.Remove = []string{old}
	endpoints := put(new, "1")
	endpoints.Remove = []string{old}
	w.group.Apply(map[*Collection]*Commit{
		w.coll(ClusterURL): clusters, w.coll(EndpointURL): endpoints, w.coll(RouteURL): put("route", fmt.Sprint(n)),
	})
}

// The route to a new cluster waits until the client has the cluster and its endpoints; the old cluster is removed when the
// client has the route.
func TestMakeBeforeBreakWaitsForAcknowledgements(t *testing.T) {
	bothVariants(t, func(t *testing.T, w *fixture, dial func(string, ...dialOption) *client) {
		w.set(ClusterURL, "c0")
		w.set(EndpointURL, "c0")
		w.set(RouteURL, "route@0")
		c := dial(ClusterURL)
		wildcardNames := []string{"*"}
		c.ask(ClusterURL, wildcardNames...)
		c.expectAck(ClusterURL, wildcardNames, "c0@1")
		c.ask(EndpointURL, "c0")
		c.expectAck(EndpointURL, []string{"c0"}, "c0@1")
		c.ask(RouteURL, "route")
		c.expectAck(RouteURL, []string{"route"}, "route@0")
		for i := 1; i < 4; i++ {
			old, new := fmt.Sprintf("c%d", i-1), fmt.Sprintf("c%d", i)
			w.swap(t, old, new, i)
			var clusters answer
			if c.delta {
				clusters = c.expect(ClusterURL, new+"@1")
			} else {
				clusters = c.expect(ClusterURL, old+"@1", new+"@1")
			}
			c.silence() // not acknowledged
			c.ack(clusters, wildcardNames...)
			c.silence() // the endpoints are to be asked for
			if c.delta {
				c.ask(EndpointURL, new)
			} else {
				c.ask(EndpointURL, old, new)
			}
			endpoints := c.expect(EndpointURL, new+"@1")
			c.silence()
			c.ack(endpoints, old, new)
			route := c.expect(RouteURL, fmt.Sprintf("route@%d", i))
			c.silence()
			c.ack(route, "route")
			if c.delta {
				c.expectAck(EndpointURL, nil, "-"+old)
				c.expectAck(ClusterURL, nil, "-"+old)
			} else {
				c.expectAck(ClusterURL, wildcardNames, new+"@1")
			}
			c.silence()
		}
	})
}

// The combinations below were found by the model, in histories that are rare.

func TestWildcard_AfterNamesOfResumedStream(t *testing.T) {
	fixture := newFixture(t, Options{})
	client := fixture.delta(testType)
	require.NoError(t, client.send(&discoveryv3.DeltaDiscoveryRequest{
		TypeUrl: testType, InitialResourceVersions: map[string]string{"a": "1", "b": "1"}, ResourceNamesSubscribe: []string{"a", "b"},
	}))
	client.ask(testType, "-b")
	client.ask(testType, "*")
	fixture.awaitSubscription(true, 1)
	fixture.set(testType, "a", "b")
	client.expectAck(testType, nil, "a@1", "b@1") // b was dropped
	client.silence()
}

func TestCollectionVersion_CoversDroppedNames(t *testing.T) {
	w := newFixture(t, Options{})
	w.coll(testType).Apply(Commit{Put: []*Entry{thing(t, "a", "1", ""), thing(t, "b", "1", "")}})
	c := w.sotw(testType)
	require.NoError(t, c.send(&discoveryv3.DiscoveryRequest{TypeUrl: testType, VersionInfo: w.coll(testType).Version()}))
	c.ask(testType, "a")
	c.ask(testType, "a", "*")
	w.awaitSubscription(true, 1)
	w.coll(testType).MarkSynced()
	c.expect(testType, "a@1", "b@1") // it dropped b in between
}

func TestStaleRequest_ResendsDroppedNames(t *testing.T) {
	fixture := newFixture(t, Options{})
	fixture.set(EndpointURL, "a", "b")
	client := fixture.sotw(EndpointURL)
	client.ask(EndpointURL, "a", "b")
	first := client.expect(EndpointURL, "a@1", "b@1")
	client.ack(first, "a", "b")
	fixture.set(EndpointURL, "a@2")
	second := client.expect(EndpointURL, "a@2")
	client.ack(first, "a") // the client had not seen the second one, and dropped b
	client.ack(second, "a", "b")
	client.expect(EndpointURL, "b@1")
}

func TestWildcardAfterNames_SendsRemainingClusters(t *testing.T) {
	fixture := newFixture(t, Options{})
	fixture.set(ClusterURL, "c0", "c1")
	fixture.set(EndpointURL, "c0", "c1")
	fixture.set(RouteURL, "route@0")
	client := fixture.sotw(ClusterURL)
	client.ask(ClusterURL, "c0")
	client.expectAck(ClusterURL, []string{"c0"}, "c0@1")
	client.ask(EndpointURL, "c0")
	client.expectAck(EndpointURL, []string{"c0"}, "c0@1")
	client.ask(RouteURL, "route")
	client.expectAck(RouteURL, []string{"route"}, "route@0")
	client.ask(ClusterURL, "*")
	clusters := client.expect(ClusterURL, "c0@1", "c1@1")
	fixture.set(RouteURL, "route@1") // it may lead to c1
	client.silence()
	client.ack(clusters, "*")
	client.silence()
	client.ask(EndpointURL, "c0", "c1")
	client.expectAck(EndpointURL, []string{"c0", "c1"}, "c1@1")
	client.expect(RouteURL, "route@1")
}

// A client that resumes asks for clusters first, and for routes later; so deleted clusters stay for now.
func TestResumedClusters_KeptUntilAckTimeout(t *testing.T) {
	resumed := func(timeout time.Duration) *client {
		w := newFixture(t, Options{AckTimeout: timeout})
		w.set(ClusterURL, "new")
		c := w.delta(ClusterURL)
		resumedVersions := map[string]string{"old": "1"}
		require.NoError(t, c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: ClusterURL, InitialResourceVersions: resumedVersions}))
		c.expectAck(ClusterURL, nil, "new@1")
		return c
	}
	resumed(time.Hour).silence()
	resumed(time.Millisecond).expectAck(ClusterURL, nil, "-old")
}

// A client that asks for routes gets those that match the clusters that it was sent, although the collections have changed since.
func TestSequentialTypes_UseOneSnapshot(t *testing.T) {
	bothVariants(t, func(t *testing.T, w *fixture, dial func(string, ...dialOption) *client) {
		w.set(ClusterURL, "c0")
		w.set(EndpointURL, "c0")
		w.set(RouteURL, "route@0")
		c := dial(ClusterURL)
		c.ask(ClusterURL, "*")
		c.expectAck(ClusterURL, []string{"*"}, "c0@1")
		w.together(func() {
			w.swap(t, "c0", "c1", 1)
			request := &wire.Request{Delta: c.delta, TypeURL: RouteURL}
			if c.delta {
				request.Subscribe = []string{"route"}
			} else {
				request.Names = []string{"route"}
			}
			st := w.onlyStream()
			st.mu.Unlock()
			require.NoError(t, st.handle(request, time.Now()))
			st.mu.Lock()
		})
		require.Equal(t, ClusterURL, c.next().typeURL, "before the route that leads to it")
	})
}

func TestUnsubscribeWildcardAndName_SendsNoResponse(t *testing.T) {
	w := newFixture(t, Options{})
	w.set(testType, "a", "b")
	client := w.delta(testType)
	client.ask(testType, "*", "a")
	client.expectAck(testType, nil, "a@1", "b@1")
	client.ask(testType, "-a", "-*")
	client.silence()
}

func TestRepeatedRejection_LoggedOnce(t *testing.T) {
	var buffer bytes.Buffer
	fixture := newFixture(t, Options{Log: slog.New(slog.NewTextHandler(&buffer, nil))})
	fixture.set(testType, "a")
	client := fixture.sotw(testType)
	client.ask(testType)
	a := client.next()
	for i := range 2 * noopsBurst {
		client.request(testType, strings.Repeat("0", i%2)+a.nonce, &status.Status{Message: "no"})
	}
	eventually(t, func() bool { return fixture.server.Clients()[0].Types[0].Nacks >= noopsBurst })
	fixture.server.Drain(context.Background(), 0)
	_ = client.ended()
	fixture.server.receivers.Wait()
	require.Equal(t, 1, strings.Count(buffer.String(), "client rejected"))
}
