package xds

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// For any stretches of a run, the chunks have them and the removals, each once, in order, within the limit.
func TestRunChunks_AtAnyBoundary(t *testing.T) {
	const limit = 1000
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		entries := make([]*Entry, r.IntN(30))
		for i := range entries {
			value := make([]byte, r.IntN(limit/5))
			if r.IntN(20) == 0 {
				value = make([]byte, limit+r.IntN(100)) // which cannot be cut
			}
			packed, err := proto.Marshal(&anypb.Any{TypeUrl: "t", Value: value})
			require.NoError(t, err)
			entries[i] = &Entry{Name: fmt.Sprint("e", i), Version: "1", Any: packed}
		}
		var want, wantRemoved []string
		var spans []span
		for i := 0; i < len(entries); {
			s := span{i + r.IntN(3), 0}
			s.end = min(s.start+1+r.IntN(10), len(entries))
			if s.start >= s.end {
				break
			}
			spans = append(spans, s)
			for _, e := range entries[s.start:s.end] {
				want = append(want, e.Name)
			}
			i = s.end + 1
		}
		for i := range r.IntN(40) {
			wantRemoved = append(wantRemoved, fmt.Sprint("gone", i, strings.Repeat("x", r.IntN(limit/7))))
		}

		var got, gotRemoved []string
		count := 0
		for _, b := range encodeRun(entries, formDelta).cut(limit, spans, wantRemoved) {
			var m discoveryv3.DeltaDiscoveryResponse
			var wire []byte
			for _, p := range b.parts {
				wire = append(wire, p.buf.ReadOnlyData()...)
			}
			require.Len(t, wire, b.size)
			require.NoError(t, proto.Unmarshal(wire, &m))
			require.True(t, b.size <= limit || len(m.GetResources())+len(m.GetRemovedResources()) == 1, "%d bytes", b.size)
			for _, res := range m.GetResources() {
				got = append(got, res.GetName())
			}
			gotRemoved = append(gotRemoved, m.GetRemovedResources()...)
			count += b.count
		}
		require.Equal(t, want, got)
		require.Equal(t, wantRemoved, gotRemoved)
		require.Equal(t, len(want)+len(wantRemoved), count)
	}
}

// Named subscriptions that want much of a difference are sent stretches of the shared encoding.
func TestNamedStreamsShareTheEncoding(t *testing.T) {
	w := newFixture(t, Options{})
	var names, items []string
	for i := range 40 {
		names = append(names, fmt.Sprintf("n%02d", i))
		items = append(items, names[i]+"@1")
	}
	w.set(testType, items...)
	wanted := append(append([]string{}, names[3:9]...), names[20:22]...)
	c := w.delta(testType)
	c.ask(testType, wanted...)
	c.expectAck(testType, nil, "n03@1", "n04@1", "n05@1", "n06@1", "n07@1", "n08@1", "n20@1", "n21@1")
	from := w.coll(testType).current.Load()
	for i := range items {
		items[i] = names[i] + "@2"
	}
	w.set(testType, items...)
	c.expectAck(testType, nil, "n03@2", "n04@2", "n05@2", "n06@2", "n07@2", "n08@2", "n20@2", "n21@2")

	to := w.coll(testType).current.Load()
	var selection subscriptionNames
	for _, name := range wanted {
		selection.add(name, nothing)
	}
	delta := variant{delta: true}
	p := plan(delta, &clientState{state: from}, &selection, to, false)
	require.Equal(t, []span{{3, 9}, {20, 22}}, p.spans)
	shared := to.since(from).deltas()
	bodies := p.bodies(delta)
	require.Len(t, bodies, 1)
	require.Len(t, bodies[0].parts, 2)
	part := bodies[0].parts[0].buf.ReadOnlyData()
	require.Same(t, &shared.bytes[shared.offset(3)], &part[0], "the same memory")
}

// later is an Any that is encoded when it is sent.
type later []byte

func (l later) EncodeAny() []byte { return l }

// An entry that is encoded on sending has the same bytes and the same version as one that holds its Any.
func TestEncodedWhenSent(t *testing.T) {
	packed, err := proto.Marshal(&anypb.Any{TypeUrl: "t", Value: []byte("content")})
	require.NoError(t, err)
	for _, version := range []string{"", "1"} {
		held := versioned(&Entry{Name: "e", Version: version, Any: packed})
		lazy := versioned(&Entry{Name: "e", Version: version, Encoder: later(packed)})
		require.Equal(t, held.Version, lazy.Version)
		for f := range forms {
			require.Equal(t, encode([]*Entry{held}, f).buf.ReadOnlyData(), encode([]*Entry{lazy}, f).buf.ReadOnlyData())
		}
	}
}
