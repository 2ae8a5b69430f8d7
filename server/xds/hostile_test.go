package xds

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// mute is a delta stream that is never read.
func (w *world) mute() discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient {
	conn := w.conn()
	ctx, cancel := context.WithCancel(context.Background())
	w.t.Cleanup(func() { cancel(); _ = conn.Close() })
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	require.NoError(w.t, err)
	return s
}

// resuming is a request with resume versions of about size bytes.
func resuming(typeURL string, size int) *discoveryv3.DeltaDiscoveryRequest {
	m := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL, InitialResourceVersions: map[string]string{"a": "1"}}
	for i := range size / 1000 {
		m.InitialResourceVersions[fmt.Sprintf("gone-%d", i)] = strings.Repeat("v", 1000)
	}
	return m
}

func TestOnlyTheVersionsThatASubscriptionBeganWithAreKept(t *testing.T) {
	w := newWorld(t, Options{})
	s := w.mute()
	require.NoError(t, s.Send(resuming("never/synced/Type", 1000)))
	for range noopsBurst {
		require.NoError(t, s.Send(resuming("never/synced/Type", 60_000)))
	}
	require.NoError(t, s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: testType}))
	st := w.onlyStream()
	eventually(t, func() bool { return st.subscription(testType) != nil })
	st.mu.Lock()
	defer st.mu.Unlock()
	require.Less(t, st.unreservedBytes, 2000)
}

func TestVersionsInSmallRequestsAreBoundedTogether(t *testing.T) {
	w := newWorld(t, Options{})
	s := w.mute()
	for i := range 30 {
		if s.Send(resuming(fmt.Sprint("never/synced/", i), 60_000)) != nil {
			break
		}
	}
	_, err := s.Recv()
	require.Equal(t, codes.ResourceExhausted, status.Code(err), err)
}

// A field in many parts is joined once, and groups are refused.
func TestALongFieldInManyParts(t *testing.T) {
	text := protowire.AppendTag(nil, 6, protowire.BytesType)
	text = protowire.AppendString(text, strings.Repeat("n", 4<<20))
	var parts [][]byte
	for part := range bytes.Lines(bytes.ReplaceAll(text, []byte(strings.Repeat("n", 100)), []byte(strings.Repeat("n", 99)+"\n"))) {
		parts = append(parts, part)
	}
	r := request{delta: true}
	allocated := testing.AllocsPerRun(1, func() { require.NoError(t, r.decode(parts...)) })
	require.Less(t, allocated, 50.0)
	require.Equal(t, strings.Repeat("n", maxNonce), r.nonce)

	group := append([]byte{15<<3 | 3}, 15<<3|4)
	require.ErrorIs(t, r.decode(group), errGroup)
	require.ErrorContains(t, r.decode(text[:100]), "unexpected EOF")
}

// An unknown field is skipped without being joined, and the fields after it are read.
func TestALongFieldThatMeansNothing(t *testing.T) {
	text := protowire.AppendVarint(protowire.AppendTag(nil, 15, protowire.BytesType), 4<<20)
	text = append(text, make([]byte, 4<<20)...)
	text = protowire.AppendString(protowire.AppendTag(text, 6, protowire.BytesType), "n")
	for _, size := range []int{1, 2, 3, 1000, 16 << 10} {
		var parts [][]byte
		for begin := 0; begin < len(text); {
			n := min(size, len(text)-begin)
			if begin > 100 { // the beginning and the end in small parts
				n = min(16<<10, max(len(text)-begin-100, 1))
			}
			parts = append(parts, text[begin:begin+n])
			begin += n
		}
		r := request{delta: true}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		require.NoError(t, r.decode(parts...))
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
		require.Equal(t, "n", r.nonce)
		require.ErrorContains(t, r.decode(parts[:len(parts)-110]...), "unexpected EOF")
	}
}

// Odd requests for everything get the shared encoding, too.
func TestEverythingIsEncodedOnceHoweverItIsAskedFor(t *testing.T) {
	var changes []change
	for i := range 1000 {
		e := thing(t, fmt.Sprintf("n%04d", i), "1", strings.Repeat("x", 100))
		changes = append(changes, change{e.Name, e})
	}
	s := nothing.with(changes)
	shared := make(map[*encoded]bool)
	for _, b := range s.deltaBodiesAll() {
		for _, p := range b.parts {
			shared[p] = true
		}
	}
	brought := request{delta: true}
	wire := appendMapEntry(nil, "x", "1")
	require.NoError(t, brought.decode(append([]byte{initialTag, byte(len(wire))}, wire...)))
	for name, c := range map[string]struct {
		has   clientState
		wants subscriptionNames
	}{
		"with a version of something else": {clientState{state: nothing, brought: brought.initial}, subscriptionNames{all: true}},
		"with a name besides": {
			clientState{state: nothing, notHeld: map[string]absenceSent{"x": false}}, subscriptionNames{true, map[string]struct{}{"x": {}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := plan(variant{delta: true}, &c.has, &c.wants, s, false)
			own, count := 0, 0
			for _, b := range p.bodies(variant{delta: true}) {
				count += b.count
				for _, part := range b.parts {
					if !shared[part] {
						own += part.len()
					}
				}
			}
			require.Equal(t, 1001, count)
			require.Less(t, own, 100)
		})
	}
}

// Repeated requests for routes acknowledge nothing.
func TestWhoKeepsAskingForRoutesIsSentWhatChanges(t *testing.T) {
	const timeout = 200 * time.Millisecond
	w := newWorld(t, Options{AckTimeout: timeout})
	w.set(ClusterURL, "a", "b")
	w.set(EndpointURL, "a", "b")
	w.set(ListenerURL, "l@1")
	var routes []string
	for i := range 300 {
		routes = append(routes, fmt.Sprintf("r%d", i))
	}
	w.set(RouteURL, routes...)
	c := w.delta(ClusterURL)
	c.ask(ClusterURL, "a", "b")
	c.expectAck(ClusterURL, nil, "a@1", "b@1")
	c.ask(ListenerURL)
	c.expectAck(ListenerURL, nil, "l@1")
	c.ask(RouteURL, "r0")
	c.expectAck(RouteURL, nil, "r0@1")
	w.set(ClusterURL, "-b")
	waits := map[string]bool{"-b": true, "l@2": true, "a@2": true}
	asking := time.NewTicker(timeout / 4)
	defer asking.Stop()
	for i, name := range routes[1:] {
		c.ask(RouteURL, name)
		if i == 4*2*removalTimeouts {
			w.set(ListenerURL, "l@2")
			w.set(ClusterURL, "a@2")
		}
		for asked := false; !asked; {
			select {
			case a := <-c.in:
				c.ack(a)
				for _, put := range a.puts {
					delete(waits, put)
				}
				for _, name := range a.removed {
					delete(waits, "-"+name)
				}
			case <-asking.C:
				asked = true
			}
		}
		if len(waits) == 0 {
			return
		}
	}
	t.Fatal("still waiting for", waits)
}
