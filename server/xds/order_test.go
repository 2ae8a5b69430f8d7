package xds

import (
	"fmt"
	"slices"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"

	"tributary/internal/xdstest"
)

func TestNamedClusters_KeptUntilRouteAck(t *testing.T) {
	w := newFixture(t, Options{AckTimeout: time.Hour})
	w.set(ClusterURL, "c1")
	w.set(RouteURL, "r1", "r2")
	c := w.sotw()
	c.Subscribe(ClusterURL, []string{"c1"}, "c1@1")
	c.Ask(RouteURL, "r1")
	a := c.Expect(RouteURL, "r1@1")
	w.group.Apply(map[*Collection]*Commit{ // r1 moves to c2
		w.coll(ClusterURL): {Put: []*Entry{thing(t, "c2@1")}, Remove: []string{"c1"}},
		w.coll(RouteURL):   {Put: []*Entry{thing(t, "r1@2")}},
	})
	c.Ack(a, "r1", "r2")
	for moved, added := false, false; !moved || !added; c.Ack(a, "r1", "r2") { // r2 may come alone, of the old cut
		a = c.Next()
		moved = moved || slices.Contains(a.Puts, "r1@2")
		added = added || slices.Contains(a.Puts, "r2@1")
	}
	c.Silence() // c1 stays until the client asked for c2
}

func TestNewWildcard_KeepsDeletedClusterUntilAck(t *testing.T) {
	fixture := newFixture(t, Options{AckTimeout: time.Hour})
	fixture.set(ClusterURL, "c1")
	fixture.set(ListenerURL, "l")
	client := fixture.delta()
	client.Subscribe(ClusterURL, []string{"c1"}, "c1@1")
	client.Ask(ListenerURL)
	answer := client.Expect(ListenerURL, "l@1") // not acknowledged yet
	fixture.group.Apply(map[*Collection]*Commit{
		fixture.coll(ClusterURL):  {Put: []*Entry{thing(t, "c2@1")}, Remove: []string{"c1"}},
		fixture.coll(ListenerURL): {Put: []*Entry{thing(t, "l@2")}},
	})
	client.Silence()
	client.Ask(ClusterURL, "*")
	acksLate(t, client, answer)
}

func TestRemovals_NotDelayedByRouteChanges(t *testing.T) {
	fixture := newFixture(t, Options{AckTimeout: 500 * time.Millisecond})
	fixture.set(ClusterURL, "c1", "c2")
	fixture.set(RouteURL, "r1")
	client := fixture.sotw()
	client.Subscribe(ClusterURL, []string{"c1", "c2"}, "c1@1", "c2@1")
	client.Subscribe(RouteURL, []string{"r1"}, "r1@1")
	fixture.set(ClusterURL, "-c1")
	changing := time.NewTicker(200 * time.Millisecond)
	defer changing.Stop()
	for i := 2; i < 100; i++ {
		fixture.set(RouteURL, fmt.Sprintf("r1@%d", i))
		for changed := false; !changed; {
			select {
			case answer := <-client.Answers:
				if answer.TypeURL == ClusterURL {
					require.Equal(t, []string{"c2@1"}, answer.Puts)
					return
				}
				client.Ack(answer, "r1")
			case <-changing.C:
				changed = true
			}
		}
	}
	t.Fatal("c1 is never removed")
}

// A client that resumed all of its types loses a removed cluster at once: no later request can name a resource that uses it.
func TestRemovalAfterResumption_DoesNotWait(t *testing.T) {
	w := newFixture(t, Options{AckTimeout: time.Hour})
	w.set(ClusterURL, "c")
	w.set(RouteURL, "r")
	client := w.delta()
	for typeURL, versions := range map[string]map[string]string{RouteURL: {"r": "1"}, ClusterURL: {"c": "1", "d": "1"}} {
		client.Send(&discoveryv3.DeltaDiscoveryRequest{
			TypeUrl: typeURL, InitialResourceVersions: versions, ResourceNamesSubscribe: []string{"*"},
		})
	}
	for {
		answer := client.Next()
		if slices.Contains(answer.Removed, "d") {
			return
		}
		client.Ack(answer)
	}
}

func acksLate(t *testing.T, c *xdstest.Client, l xdstest.Answer) {
	acked := false
	for {
		select {
		case a := <-c.Answers:
			if a.TypeURL == ClusterURL {
				require.Empty(t, a.Removed, "c1 goes while the client's listener leads there")
			} else {
				return // the listener came first
			}
			c.Ack(a)
		case <-time.After(quiet):
			if acked {
				return
			}
			acked = true
			c.Ack(l)
		}
	}
}
