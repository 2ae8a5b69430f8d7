package xds

import (
	"fmt"
	"slices"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
)

func TestUnsyncedOrderedType_SendsNoResponse(t *testing.T) {
	fixture := newFixture(t, Options{})
	fixture.set(ClusterURL, "c")
	fixture.coll(ListenerURL) // not synced
	client := fixture.sotw(ClusterURL)
	client.ask(ClusterURL)
	client.expectAck(ClusterURL, nil, "c@1")
	client.ask(ListenerURL)
	client.silence()
	fixture.set(ListenerURL, "l") // content, then MarkSynced
	client.expect(ListenerURL, "l@1")
}

func TestUnsyncedOrderedType_ResumedDeltaGetsNoResponse(t *testing.T) {
	fixture := newFixture(t, Options{})
	fixture.set(ClusterURL, "c")
	fixture.coll(ListenerURL)
	c := fixture.delta(ClusterURL)
	c.ask(ClusterURL)
	c.expectAck(ClusterURL, nil, "c@1")
	require.NoError(t, c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: ListenerURL, InitialResourceVersions: map[string]string{"l": "1"}}))
	c.silence()
	fixture.set(ListenerURL, "l")
	for {
		select {
		case a := <-c.answers:
			require.Empty(t, a.removed, "a listener that is there is removed")
			c.ack(a)
			continue
		case <-time.After(quiet):
		}
		break
	}
}

func TestLaterType_UsesCurrentSnapshot(t *testing.T) {
	fixture := newFixture(t, Options{})
	fixture.set(ClusterURL, "c")
	fixture.set(RouteURL, "r")
	fixture.coll(ListenerURL)
	client := fixture.sotw(ClusterURL)
	client.ask(ClusterURL)
	client.expectAck(ClusterURL, nil, "c@1")
	client.ask(RouteURL, "r")
	client.expectAck(RouteURL, []string{"r"}, "r@1")
	fixture.set(ListenerURL, "l")
	client.ask(ListenerURL)
	client.expect(ListenerURL, "l@1")
}

func TestNamedClusters_KeptUntilRouteAck(t *testing.T) {
	for _, asks := range []bool{false, true} {
		t.Run(fmt.Sprint(asks), func(t *testing.T) {
			w := newFixture(t, Options{AckTimeout: time.Hour})
			w.set(ClusterURL, "c1")
			w.set(RouteURL, "r1", "r2")
			c := w.sotw(ClusterURL)
			c.ask(ClusterURL, "c1")
			c.expectAck(ClusterURL, []string{"c1"}, "c1@1")
			c.ask(RouteURL, "r1")
			a := c.expect(RouteURL, "r1@1")
			// r1 moves to c2
			e := &Commit{Put: []*Entry{thing(t, "c2", "1", "")}, Remove: []string{"c1"}}
			w.group.Apply(map[*Collection]*Commit{w.coll(ClusterURL): e, w.coll(RouteURL): {Put: []*Entry{thing(t, "r1", "2", "")}}})
			if asks {
				c.ack(a, "r1", "r2")
				for moved, removalSent := false, false; !moved || !removalSent; c.ack(a, "r1", "r2") { // r2 may come alone, of the old cut
					a = c.next()
					moved = moved || slices.Contains(a.puts, "r1@2")
					removalSent = removalSent || slices.Contains(a.puts, "r2@1")
				}
			} else {
				c.ack(a, "r1")
				c.expectAck(RouteURL, []string{"r1"}, "r1@2")
			}
			c.silence() // c1 stays until the client asked for c2
		})
	}
}

func TestNewWildcard_KeepsDeletedClusterUntilAck(t *testing.T) {
	fixture := newFixture(t, Options{AckTimeout: time.Hour})
	fixture.set(ClusterURL, "c1")
	fixture.set(ListenerURL, "l")
	client := fixture.delta(ClusterURL)
	client.ask(ClusterURL, "c1")
	client.expectAck(ClusterURL, nil, "c1@1")
	client.ask(ListenerURL)
	answer := client.expect(ListenerURL, "l@1") // not acknowledged yet
	fixture.group.Apply(map[*Collection]*Commit{
		fixture.coll(ClusterURL):  {Put: []*Entry{thing(t, "c2", "1", "")}, Remove: []string{"c1"}},
		fixture.coll(ListenerURL): {Put: []*Entry{thing(t, "l", "2", "")}},
	})
	client.silence()
	client.ask(ClusterURL, "*")
	client.acksLate(answer)
}

func TestRemovals_NotDelayedByRouteChanges(t *testing.T) {
	fixture := newFixture(t, Options{AckTimeout: 500 * time.Millisecond})
	fixture.set(ClusterURL, "c1", "c2")
	fixture.set(RouteURL, "r1")
	client := fixture.sotw(ClusterURL)
	client.ask(ClusterURL, "c1", "c2")
	client.expectAck(ClusterURL, []string{"c1", "c2"}, "c1@1", "c2@1")
	client.ask(RouteURL, "r1")
	client.expectAck(RouteURL, []string{"r1"}, "r1@1")
	fixture.set(ClusterURL, "-c1")
	changing := time.NewTicker(200 * time.Millisecond)
	defer changing.Stop()
	for i := 2; i < 100; i++ {
		fixture.set(RouteURL, fmt.Sprintf("r1@%d", i))
		for changed := false; !changed; {
			select {
			case answer := <-client.answers:
				if answer.typeURL == ClusterURL {
					require.Equal(t, []string{"c2@1"}, answer.puts)
					return
				}
				client.ack(answer, "r1")
			case <-changing.C:
				changed = true
			}
		}
	}
	t.Fatal("c1 is never removed")
}

// An Envoy that has a new version of a cluster waits for its endpoints, although it has acknowledged them.
func TestResumedWildcard_ResendsEndpointsAfterCluster(t *testing.T) {
	w := newFixture(t, Options{})
	w.set(ClusterURL, "c@2", "d")
	w.set(EndpointURL, "c", "d")
	c := w.delta(ClusterURL)
	resume := func(typeURL string, versions map[string]string) {
		require.NoError(t, c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL, InitialResourceVersions: versions}))
	}
	resume(ClusterURL, map[string]string{"c": "1", "d": "1"})
	a := c.next()
	require.Equal(t, []string{"c@2"}, a.puts)
	c.ack(a)
	resume(EndpointURL, map[string]string{"c": "1", "d": "1"})
	require.Equal(t, []string{"c@1"}, c.next().puts)
}

// A client that resumed all of its types loses a removed cluster at once: no later request can name a resource that uses it.
func TestRemovalAfterResumption_DoesNotWait(t *testing.T) {
	w := newFixture(t, Options{AckTimeout: time.Hour})
	w.set(ClusterURL, "c")
	w.set(RouteURL, "r")
	client := w.delta(ClusterURL)
	for typeURL, versions := range map[string]map[string]string{RouteURL: {"r": "1"}, ClusterURL: {"c": "1", "d": "1"}} {
		require.NoError(t, client.send(&discoveryv3.DeltaDiscoveryRequest{
			TypeUrl: typeURL, InitialResourceVersions: versions, ResourceNamesSubscribe: []string{"*"},
		}))
	}
	for {
		answer := client.next()
		if slices.Contains(answer.removed, "d") {
			return
		}
		client.ack(answer)
	}
}

func (c *client) acksLate(l answer) {
	acked := false
	for {
		select {
		case a := <-c.answers:
			if a.typeURL == ClusterURL {
				require.Empty(c.t, a.removed, "c1 goes while the client's listener leads there")
			} else {
				return // the listener came first
			}
			c.ack(a)
		case <-time.After(quiet):
			if acked {
				return
			}
			acked = true
			c.ack(l)
		}
	}
}
