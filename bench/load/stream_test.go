package main

import (
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

func TestReadResponse(t *testing.T) {
	full := &discoveryv3.DiscoveryResponse{
		VersionInfo: "v", TypeUrl: "t", Nonce: "n", Canary: true,
		Resources:    []*anypb.Any{{TypeUrl: "t", Value: []byte("xyz")}, {TypeUrl: "t"}},
		ControlPlane: &corev3.ControlPlane{Identifier: "me"},
	}
	delta := &discoveryv3.DeltaDiscoveryResponse{
		SystemVersionInfo: "v", TypeUrl: "t", Nonce: "n",
		Resources: []*discoveryv3.Resource{{Name: "a"}}, RemovedResources: []string{"b", "c"},
	}
	for _, c := range []struct {
		m    proto.Message
		want response
	}{
		{full, response{version: "v", typeURL: "t", nonce: "n", resources: 2}},
		{delta, response{delta: true, version: "v", typeURL: "t", nonce: "n", resources: 1, removed: 2}},
	} {
		b, err := proto.Marshal(c.m)
		require.NoError(t, err)
		c.want.size = len(b)
		got := response{delta: c.want.delta}
		require.NoError(t, got.read(mem.BufferSlice{mem.SliceBuffer(b[:3]), mem.SliceBuffer(b[3:])}))
		assert.Equal(t, c.want, got)
	}
}

func FuzzReadResponse(f *testing.F) {
	b, err := proto.Marshal(&discoveryv3.DiscoveryResponse{VersionInfo: "v", TypeUrl: "t", Resources: []*anypb.Any{{TypeUrl: "t"}}})
	require.NoError(f, err)
	f.Add(b)
	f.Add([]byte{0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		var m discoveryv3.DiscoveryResponse
		var r response
		err := r.read(mem.BufferSlice{mem.SliceBuffer(b)})
		if err == nil && proto.Unmarshal(b, &m) == nil {
			assert.Equal(t, m.GetVersionInfo(), r.version)
			assert.Len(t, m.GetResources(), r.resources)
		}
	})
}

func TestQuantiles(t *testing.T) {
	var h histogram
	assert.Zero(t, h.quantiles())
	for i := range 1000 {
		h.add(time.Duration(i+1) * time.Millisecond)
	}
	q := h.quantiles()
	assert.Equal(t, 1000, q.Count)
	assert.InEpsilon(t, 0.5, float64(q.P50), 0.03)
	assert.InEpsilon(t, 0.9, float64(q.P90), 0.03)
	assert.InEpsilon(t, 0.99, float64(q.P99), 0.03)
	assert.InEpsilon(t, 1.0, float64(q.Max), 1e-9)
	h = histogram{}
	h.add(0)
	assert.Zero(t, h.quantiles().P99)
	assert.Equal(t, "1.5s 12.35ms 7µs", Seconds(1.5).String()+" "+Seconds(0.012345678).String()+" "+Seconds(0.000007).String())
}

func TestHistoryOfVersions(t *testing.T) {
	vs := versions{last: make(map[version]sight)}
	now := time.Unix(0, 0)
	see := func(name string, after int) (place int, lag time.Duration, before bool) {
		now = now.Add(time.Second)
		place, first, before := vs.see(version{"t", name}, after, now)
		return place, now.Sub(first), before
	}
	expect := func(name string, after, place int, lag time.Duration, before bool) {
		t.Helper()
		p, l, b := see(name, after)
		assert.Equal(t, []any{place, lag, before}, []any{p, l, b})
	}
	expect("a", 0, 1, 0, false)                        // the first client,
	expect("a", 0, 1, time.Second, true)               // and the second
	expect("b", 1, 2, 0, false)                        // the first moves on,
	expect("a", 2, 3, 0, false)                        // and back,
	expect("b", 1, 2, 3*time.Second-time.Second, true) // which the second still has to see
	expect("a", 2, 3, 2*time.Second, true)
	for i := range 2 * maxVersions {
		see(string(rune(1000+i)), vs.seen)
	}
	assert.LessOrEqual(t, len(vs.last), maxVersions)
}

// TestAnswersInPiecesOfOtherServers: responses of one version are parts of one answer.
func TestAnswersInPiecesOfOtherServers(t *testing.T) {
	cfg := Config{Clients: 1, Types: []string{"t"}}
	m := newMeter(cfg)
	s := &stream{cfg: &cfg, meter: m, types: make(map[string]*received)}
	for _, version := range []string{"1", "1", "2", "1", "1"} {
		s.take(&response{delta: true, typeURL: "t", version: version, resources: 1}, time.Now())
	}
	s.end(nil)
	r := m.report()
	assert.Equal(t, 2, r.Initial.Messages)
	assert.Equal(t, 3, r.Later.Messages)
	assert.Equal(t, 2, r.Changes)
	assert.Equal(t, 1, r.Synced)
}
