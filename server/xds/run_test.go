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
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		entries := make([]*Entry, random.IntN(30))
		for i := range entries {
			value := make([]byte, random.IntN(limit/5))
			if random.IntN(20) == 0 {
				value = make([]byte, limit+random.IntN(100)) // which cannot be cut
			}
			packed, err := proto.Marshal(&anypb.Any{TypeUrl: "t", Value: value})
			require.NoError(t, err)
			entries[i] = &Entry{Name: fmt.Sprint("e", i), Version: "1", Any: packed}
		}
		var want, wantRemoved []string
		var spans []span
		for i := 0; i < len(entries); {
			s := span{i + random.IntN(3), 0}
			s.end = min(s.start+1+random.IntN(10), len(entries))
			if s.start >= s.end {
				break
			}
			spans = append(spans, s)
			for _, e := range entries[s.start:s.end] {
				want = append(want, e.Name)
			}
			i = s.end + 1
		}
		for i := range random.IntN(40) {
			wantRemoved = append(wantRemoved, fmt.Sprint("gone", i, strings.Repeat("x", random.IntN(limit/7))))
		}

		var got, gotRemoved []string
		count := 0
		for _, body := range encodeRun(entries, formDelta).cut(limit, spans, wantRemoved) {
			var m discoveryv3.DeltaDiscoveryResponse
			var wire []byte
			for _, p := range body.parts {
				wire = append(wire, p.buf.ReadOnlyData()...)
			}
			require.Len(t, wire, body.size)
			require.NoError(t, proto.Unmarshal(wire, &m))
			require.True(t, body.size <= limit || len(m.GetResources())+len(m.GetRemovedResources()) == 1, "%d bytes", body.size)
			for _, res := range m.GetResources() {
				got = append(got, res.GetName())
			}
			gotRemoved = append(gotRemoved, m.GetRemovedResources()...)
			count += body.count
		}
		require.Equal(t, want, got)
		require.Equal(t, wantRemoved, gotRemoved)
		require.Equal(t, len(want)+len(wantRemoved), count)
	}
}

// Named subscriptions that want much of a difference are sent stretches of the shared encoding.
func TestNamedStreamsShareTheEncoding(t *testing.T) {
	fixture := newFixture(t)
	var names, items []string
	for i := range 40 {
		names = append(names, fmt.Sprintf("n%02d", i))
		items = append(items, names[i]+"@1")
	}
	fixture.set(testType, items...)
	wanted := append(append([]string{}, names[3:9]...), names[20:22]...)
	client := fixture.delta()
	client.Ask(testType, wanted...)
	client.ExpectAck(testType, nil, "n03@1", "n04@1", "n05@1", "n06@1", "n07@1", "n08@1", "n20@1", "n21@1")
	from := fixture.coll(testType).current.Load()
	for i := range items {
		items[i] = names[i] + "@2"
	}
	fixture.set(testType, items...)
	client.ExpectAck(testType, nil, "n03@2", "n04@2", "n05@2", "n06@2", "n07@2", "n08@2", "n20@2", "n21@2")

	state := fixture.coll(testType).current.Load()
	var selection subscriptionNames
	for _, name := range wanted {
		selection.add(name, initialState)
	}
	delta := variant{delta: true}
	p := plan(delta, &clientState{state: from}, &selection, state, false)
	require.Equal(t, []span{{3, 9}, {20, 22}}, p.spans)
	shared := state.differenceFrom(from).deltas()
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
