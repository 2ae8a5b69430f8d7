package xds

import (
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
)

const ttl = 400 * time.Millisecond

// mortalWorld has a resource with a TTL and one without.
func mortalWorld(t *testing.T) *world {
	w := newWorld(t, Options{})
	a, b := thing(t, "mortal", "1", ""), thing(t, "eternal", "1", "")
	a.TTL = ttl
	w.coll(testType).Apply(Commit{Put: []*Entry{a, b}})
	w.coll(testType).MarkSynced()
	return w
}

func exchange[M proto.Message](t *testing.T, w *world, delta bool, first proto.Message, m func() M) (next func() M) {
	conn := w.conn()
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	stream := open(t.Context(), t, conn, delta, testType, dialOptions{})
	require.NoError(t, stream.SendMsg(first))
	return func() M {
		in := m()
		require.NoError(t, stream.RecvMsg(in))
		return in
	}
}

func TestRule14TTLInDelta(t *testing.T) {
	w := mortalWorld(t)
	next := exchange(t, w, true, &discoveryv3.DeltaDiscoveryRequest{
		TypeUrl: testType,
		Node:    &corev3.Node{ClientFeatures: []string{featureTTL}},
	},
		func() *discoveryv3.DeltaDiscoveryResponse { return &discoveryv3.DeltaDiscoveryResponse{} })
	first := next()
	require.Len(t, first.Resources, 2)
	require.Nil(t, first.Resources[0].Ttl, "eternal")
	require.Equal(t, ttl, first.Resources[1].Ttl.AsDuration())
	for range 2 {
		beat := next()
		require.Len(t, beat.Resources, 1)
		require.Equal(t, "mortal", beat.Resources[0].Name)
		require.Equal(t, "1", beat.Resources[0].Version)
		require.Equal(t, ttl, beat.Resources[0].Ttl.AsDuration())
		require.Nil(t, beat.Resources[0].Resource, "a heartbeat has no body")
	}
}

func TestRule14TTLInSotW(t *testing.T) {
	w := mortalWorld(t)
	node := &corev3.Node{ClientFeatures: []string{featureTTL, featureWrapped}}
	next := exchange(t, w, false, &discoveryv3.DiscoveryRequest{TypeUrl: testType, Node: node},
		func() *discoveryv3.DiscoveryResponse { return &discoveryv3.DiscoveryResponse{} })
	unwrap := func(m *discoveryv3.DiscoveryResponse) map[string]*discoveryv3.Resource {
		rs := map[string]*discoveryv3.Resource{}
		for _, a := range m.Resources {
			var r discoveryv3.Resource
			require.NoError(t, a.UnmarshalTo(&r))
			rs[r.Name] = &r
		}
		require.Len(t, rs, 2)
		return rs
	}
	first := unwrap(next())
	require.Equal(t, ttl, first["mortal"].Ttl.AsDuration())
	require.Equal(t, "mortal@1", said(t, first["mortal"].Resource))
	beat := unwrap(next())
	require.Nil(t, beat["mortal"].Resource)
	require.Equal(t, "eternal@1", said(t, beat["eternal"].Resource), "its absence would delete it")
}

func TestRule14NoTTLForClientsThatDoNotSupportIt(t *testing.T) {
	w := mortalWorld(t)
	c := w.sotw(testType)
	c.ask(testType)
	c.expectAck(testType, nil, "eternal@1", "mortal@1") // not wrapped
	d := exchange(t, w, true, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: testType},
		func() *discoveryv3.DeltaDiscoveryResponse { return &discoveryv3.DeltaDiscoveryResponse{} })
	for _, r := range d().Resources {
		require.Nil(t, r.Ttl)
	}
	time.Sleep(ttl) // time is the subject: a heartbeat would have come
	c.silence()
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
