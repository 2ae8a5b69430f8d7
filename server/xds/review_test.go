package xds

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/status"
)

func TestNothingBeforeSyncOfAnOrderedType(t *testing.T) {
	w := newWorld(t, Options{})
	w.set(ClusterURL, "c")
	w.coll(ListenerURL) // not synced
	c := w.sotw(ClusterURL)
	c.ask(ClusterURL)
	c.expectAck(ClusterURL, nil, "c@1")
	c.ask(ListenerURL)
	c.silence()
	w.set(ListenerURL, "l") // content, then MarkSynced
	c.expect(ListenerURL, "l@1")
}

func TestNothingBeforeSyncResumedDelta(t *testing.T) {
	w := newWorld(t, Options{})
	w.set(ClusterURL, "c")
	w.coll(ListenerURL)
	c := w.delta(ClusterURL)
	c.ask(ClusterURL)
	c.expectAck(ClusterURL, nil, "c@1")
	require.NoError(t, c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: ListenerURL, InitialResourceVersions: map[string]string{"l": "1"}}))
	c.silence()
	w.set(ListenerURL, "l")
	for {
		select {
		case a := <-c.in:
			require.Empty(t, a.removed, "a listener that is there is removed")
			c.ack(a)
			continue
		case <-time.After(quiet):
		}
		break
	}
}

// asked for later
func TestStaleCutForATypeAskedForLater(t *testing.T) {
	w := newWorld(t, Options{})
	w.set(ClusterURL, "c")
	w.set(RouteURL, "r")
	w.coll(ListenerURL)
	c := w.sotw(ClusterURL)
	c.ask(ClusterURL)
	c.expectAck(ClusterURL, nil, "c@1")
	c.ask(RouteURL, "r")
	c.expectAck(RouteURL, []string{"r"}, "r@1")
	w.set(ListenerURL, "l")
	c.ask(ListenerURL)
	c.expect(ListenerURL, "l@1")
}

func TestHeartbeatsStarveAClientThatDoesNotAck(t *testing.T) {
	w := newWorld(t, Options{AckTimeout: 300 * time.Millisecond})
	e := thing(t, "m", "1", "")
	e.TTL = 300 * time.Millisecond
	w.coll(testType).Apply(Commit{Put: []*Entry{e}})
	w.coll(testType).MarkSynced()
	c := w.delta(testType)
	require.NoError(t, c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: testType, Node: &corev3.Node{ClientFeatures: []string{featureTTL}}}))
	c.next()
	w.set(testType, "new")
	until := time.After(3 * time.Second) // ten times the timeout
	for {
		select {
		case a := <-c.in:
			if len(a.puts) > 0 && strings.HasPrefix(a.puts[0], "new") {
				return
			}
		case <-until:
			t.Fatal("the change never comes")
		}
	}
}

func TestClustersByNameAreKeptAlsoIfTheRouteAnswersARequest(t *testing.T) {
	for _, asks := range []bool{false, true} {
		t.Run(fmt.Sprint(asks), func(t *testing.T) {
			w := newWorld(t, Options{AckTimeout: time.Hour})
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
				a = c.next()
				for len(a.puts) < 2 { // r2 alone of the old cut
					c.ack(a, "r1", "r2")
					a = c.next()
				}
				c.ack(a, "r1", "r2")
			} else {
				c.ack(a, "r1")
				c.expectAck(RouteURL, []string{"r1"}, "r1@2")
			}
			c.silence() // c1 stays until the client asked for c2
		})
	}
}

func TestUnsubscribingFromAllAndANameIsNotAnswered(t *testing.T) {
	w := newWorld(t, Options{})
	w.set(testType, "a", "b")
	c := w.delta(testType)
	c.ask(testType, "*", "a")
	c.expectAck(testType, nil, "a@1", "b@1")
	c.ask(testType, "-a", "-*")
	c.silence()
}

func TestGivenVersionsOnly(t *testing.T) {
	w := newWorld(t, Options{})
	w.coll(ClusterURL).Apply(Commit{Put: []*Entry{thing(t, "c1", "1", ""), thing(t, "c2", "1", "")}, Version: "one"})
	w.coll(ClusterURL).MarkSynced()
	w.set(ListenerURL, "l")
	c := w.sotw(ClusterURL)
	c.ask(ClusterURL)
	a := c.expectAck(ClusterURL, nil, "c1@1", "c2@1")
	require.Equal(t, "one", a.version)
	c.ask(ListenerURL)
	c.expectAck(ListenerURL, nil, "l@1")
	w.coll(ClusterURL).Apply(Commit{Remove: []string{"c2"}, Version: "two"})
	a = c.expectAck(ClusterURL, nil, "c1@1")
	require.Equal(t, "two", a.version)
}

func TestAVersionOfNamesIsNotOfEverything(t *testing.T) {
	w := newWorld(t, Options{})
	w.coll(testType).Apply(Commit{Put: []*Entry{thing(t, "a", "1", ""), thing(t, "b", "1", "")}})
	c := w.sotw(testType)
	require.NoError(t, c.send(&discoveryv3.DiscoveryRequest{TypeUrl: testType, VersionInfo: w.coll(testType).Version(), ResourceNames: []string{"a"}}))
	c.ask(testType, "*")
	w.until(true, 0)
	w.coll(testType).MarkSynced()
	c.expect(testType, "a@1", "b@1")
}

func TestWhatIsKeptOfARequest(t *testing.T) {
	w := newWorld(t, Options{})
	w.set(testType, "a")
	c := w.sotw(testType)
	c.ask(testType)
	a := c.next()
	require.NoError(t, c.send(&discoveryv3.DiscoveryRequest{TypeUrl: testType, ResponseNonce: strings.Repeat("0", 8<<20) + a.nonce}))
	c.silence()
	require.Empty(t, w.server.Clients()[0].Types[0].AckedNonce, "a nonce counts as it was sent")
	for _, req := range []*discoveryv3.DiscoveryRequest{
		{TypeUrl: testType, Node: &corev3.Node{Id: strings.Repeat("x", 1<<20)}},
		{TypeUrl: strings.Repeat("t", 1<<20)},
	} {
		d := w.sotw(testType)
		require.NoError(t, d.send(req))
		require.ErrorContains(t, d.ended(), "the limit is")
	}
}

func TestARepeatedRejectionIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	w := newWorld(t, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	w.set(testType, "a")
	c := w.sotw(testType)
	c.ask(testType)
	a := c.next()
	for i := range 1000 {
		c.request(testType, strings.Repeat("0", i%2)+a.nonce, &status.Status{Message: "no"})
	}
	eventually(t, func() bool { return w.server.Clients()[0].Types[0].Nacks >= 500 })
	w.server.Drain(context.Background(), 0)
	_ = c.ended()
	w.server.receivers.Wait()
	require.Less(t, strings.Count(log.String(), "client rejected"), 10)
}

func TestANewWildcardDoesNotBreakBeforeItMakes(t *testing.T) {
	w := newWorld(t, Options{AckTimeout: time.Hour})
	w.set(ClusterURL, "c1")
	w.set(ListenerURL, "l")
	c := w.delta(ClusterURL)
	c.ask(ClusterURL, "c1")
	c.expectAck(ClusterURL, nil, "c1@1")
	c.ask(ListenerURL)
	a := c.expect(ListenerURL, "l@1") // not acknowledged yet
	w.group.Apply(map[*Collection]*Commit{
		w.coll(ClusterURL):  {Put: []*Entry{thing(t, "c2", "1", "")}, Remove: []string{"c1"}},
		w.coll(ListenerURL): {Put: []*Entry{thing(t, "l", "2", "")}},
	})
	c.silence()
	c.ask(ClusterURL, "*")
	c.acksLate(a)
}

func (c *client) acksLate(l answer) {
	acked := false
	for {
		select {
		case a := <-c.in:
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

func TestWhoResumesToLessGivesItsRoomBack(t *testing.T) {
	w := newWorld(t, Options{AckTimeout: 5 * time.Second})
	w.set(ClusterURL, "c")
	w.set(EndpointURL, "c")
	c := w.delta(ClusterURL)
	m := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: ClusterURL, InitialResourceVersions: map[string]string{"c": "1", "gone": "1"}, ResourceNamesSubscribe: []string{"c", "gone"}}
	for i := range 4000 { // of things that are not wanted by name: size only
		m.InitialResourceVersions[fmt.Sprintf("some-quite-long-name-%d", i)] = "1"
	}
	require.NoError(t, c.send(m))
	w.until(false, 2)
	time.Sleep(time.Second)
	require.True(t, w.server.gate.rooms.TryAcquire(w.server.gate.size), "the room is still taken")
	w.server.gate.rooms.Release(w.server.gate.size)
}

func TestRemovalsAreNotPutOffWhileRoutesKeepChanging(t *testing.T) {
	w := newWorld(t, Options{AckTimeout: 500 * time.Millisecond})
	w.set(ClusterURL, "c1", "c2")
	w.set(RouteURL, "r1")
	c := w.sotw(ClusterURL)
	c.ask(ClusterURL, "c1", "c2")
	c.expectAck(ClusterURL, []string{"c1", "c2"}, "c1@1", "c2@1")
	c.ask(RouteURL, "r1")
	c.expectAck(RouteURL, []string{"r1"}, "r1@1")
	w.set(ClusterURL, "-c1")
	changing := time.NewTicker(200 * time.Millisecond)
	defer changing.Stop()
	for i := 2; i < 100; i++ {
		w.set(RouteURL, fmt.Sprintf("r1@%d", i))
		for changed := false; !changed; {
			select {
			case a := <-c.in:
				if a.typeURL == ClusterURL {
					require.Equal(t, []string{"c2@1"}, a.puts)
					return
				}
				c.ack(a, "r1")
			case <-changing.C:
				changed = true
			}
		}
	}
	t.Fatal("c1 is never removed")
}

func TestALargeNodeCountsAsNames(t *testing.T) {
	w := newWorld(t, Options{Limits: Limits{NamesPerStream: 1000, RefusalDelay: -1}})
	w.set(testType, "a")
	envoy := &corev3.Node{Id: "n"} // which lists what it was built with
	for i := range 1000 {
		envoy.Extensions = append(envoy.Extensions, &corev3.Extension{Name: fmt.Sprintf("envoy.filters.http.an-extension-%d", i)})
	}
	c := w.sotw(testType)
	require.NoError(t, c.send(&discoveryv3.DiscoveryRequest{TypeUrl: testType, Node: envoy}))
	require.Equal(t, []string{"a@1"}, c.next().puts)
	node := w.server.Clients()[0].Node
	require.Equal(t, "n", node.Id)
	require.Empty(t, node.Extensions, "is kept for nothing")
	require.NoError(t, c.close())

	d := w.sotw(testType)
	require.NoError(t, d.send(&discoveryv3.DiscoveryRequest{TypeUrl: testType, Node: &corev3.Node{Id: strings.Repeat("x", 100<<10)}}))
	require.ErrorContains(t, d.ended(), "the limit is 1000")
	eventually(t, func() bool { return w.server.names.Load() == 0 })
}

// An Envoy that has a new version of a cluster waits for its endpoints, though it has them, and has said so.
func TestEndpointsThatAResumedWildcardHasAreSentAfterTheirCluster(t *testing.T) {
	w := newWorld(t, Options{})
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
