package xds

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// mute is a delta stream that is never read.
func (f *fixture) mute() discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient {
	conn := f.conn()
	ctx, cancel := context.WithCancel(context.Background())
	f.t.Cleanup(func() { cancel(); _ = conn.Close() })
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	require.NoError(f.t, err)
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

func TestInitialVersions_KeptForFirstRequestOnly(t *testing.T) {
	fixture := newFixture(t)
	s := fixture.mute()
	require.NoError(t, s.Send(resuming("never/synced/Type", 1000)))
	for range noopsBurst {
		require.NoError(t, s.Send(resuming("never/synced/Type", 60_000)))
	}
	require.NoError(t, s.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: testType}))
	stream := fixture.onlyStream()
	eventually(t, func() bool { return stream.subscription(testType) != nil })
	stream.mu.Lock()
	defer stream.mu.Unlock()
	require.Less(t, stream.unreservedBytes, 2000)
}

func TestInitialVersions_SmallRequestsShareLimit(t *testing.T) {
	w := newFixture(t)
	s := w.mute()
	for i := range 30 {
		if s.Send(resuming(fmt.Sprint("never/synced/", i), 60_000)) != nil {
			break
		}
	}
	_, err := s.Recv()
	require.Equal(t, codes.ResourceExhausted, status.Code(err), err)
}

// Odd requests for everything get the shared encoding, too.
func TestWildcardResponse_SharesEncoding(t *testing.T) {
	var changes []change
	for i := range 1000 {
		e := padded(t, fmt.Sprintf("n%04d", i), "1", strings.Repeat("x", 100))
		changes = append(changes, change{e.Name, e})
	}
	state := initialState.apply(changes)
	shared := make(map[*encoded]bool)
	for _, b := range state.deltaBodiesAll() {
		for _, p := range b.parts {
			shared[p] = true
		}
	}
	for name, c := range map[string]struct {
		client    clientState
		selection subscriptionNames
	}{
		"with a version of something else": {
			clientState{state: initialState, brought: broughtVersions(t, "x@1")}, subscriptionNames{wildcard: true},
		},
		"with a missing name": {
			clientState{state: initialState, notHeld: map[string]absenceSent{"x": false}}, subscriptionNames{true, map[string]struct{}{"x": {}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := plan(variant{delta: true}, &c.client, &c.selection, state, false)
			unsharedBytes, count := 0, 0
			for _, b := range p.bodies(variant{delta: true}) {
				count += b.count
				for _, part := range b.parts {
					if !shared[part] {
						unsharedBytes += part.len()
					}
				}
			}
			require.Equal(t, 1001, count)
			require.Less(t, unsharedBytes, 100)
		})
	}
}

// Repeated route requests are no acknowledgements.
func TestRepeatedRouteRequests_StillReceiveChanges(t *testing.T) {
	const timeout = 200 * time.Millisecond
	fixture := newFixture(t, Options{AckTimeout: timeout})
	fixture.set(ClusterURL, "a", "b")
	fixture.set(EndpointURL, "a", "b")
	fixture.set(ListenerURL, "l@1")
	var routes []string
	for i := range 300 {
		routes = append(routes, fmt.Sprintf("r%d", i))
	}
	fixture.set(RouteURL, routes...)
	client := fixture.delta()
	client.Subscribe(ClusterURL, []string{"a", "b"}, "a@1", "b@1")
	client.Subscribe(ListenerURL, nil, "l@1")
	client.Subscribe(RouteURL, []string{"r0"}, "r0@1")
	fixture.set(ClusterURL, "-b")
	waits := map[string]bool{"-b": true, "l@2": true, "a@2": true}
	asking := time.NewTicker(timeout / 4)
	defer asking.Stop()
	for i, name := range routes[1:] {
		client.Ask(RouteURL, name)
		if i == 4*2*removalTimeouts {
			fixture.set(ListenerURL, "l@2")
			fixture.set(ClusterURL, "a@2")
		}
		for requested := false; !requested; {
			select {
			case answer := <-client.Answers:
				client.Ack(answer)
				for _, put := range answer.Puts {
					delete(waits, put)
				}
				for _, name := range answer.Removed {
					delete(waits, "-"+name)
				}
			case <-asking.C:
				requested = true
			}
		}
		if len(waits) == 0 {
			return
		}
	}
	t.Fatal("still waiting for", waits)
}
