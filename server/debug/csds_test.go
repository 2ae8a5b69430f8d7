package debug

import (
	"context"
	"iter"
	"runtime"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"tributary/server/xds"
)

// many are so many clients, each of which has a name of so many bytes.
type many struct{ clients, size int }

func (m many) Served(uint64) []xds.Served { return nil }

func (m many) EachClient() iter.Seq[xds.ClientStatus] {
	return func(yield func(xds.ClientStatus) bool) {
		for i := range m.clients {
			c := xds.ClientStatus{
				StreamID: uint64(i), Node: &corev3.Node{Id: strings.Repeat("n", m.size)}, Types: []xds.TypeStatus{{TypeURL: "a", Synced: true}},
			}
			if !yield(c) {
				return
			}
		}
	}
}

// An answer has all clients, whatever their size.
func TestCSDS_AnswersOfAnySize(t *testing.T) {
	for _, of := range []many{{0, 0}, {1, 1}, {3, 4 << 10}, {1000, 100}, {5, 768 << 10}, {10_000, 250}} {
		c := NewCSDS(of)
		answer, err := c.encode(t.Context(), &statusv3.ClientStatusRequest{})
		require.NoError(t, err)
		var got statusv3.ClientStatusResponse
		require.NoError(t, proto.Unmarshal(answer.Materialize(), &got))
		require.Len(t, got.GetConfig(), of.clients)
		for _, one := range got.GetConfig() {
			require.Len(t, one.GetNode().GetId(), of.size)
		}
		require.LessOrEqual(t, int64(answer.Len()), c.memory.Load())
	}
}

// An answer has its limit, and so has what all of them take that are not sent yet. What was collected counts no longer.
func TestAnswersOnTheirWayAreBounded(t *testing.T) {
	all := &statusv3.ClientStatusRequest{}
	_, err := NewCSDS(many{maxAnswer/(1<<20) + 1, 1 << 20}).encode(t.Context(), all)
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	require.ErrorContains(t, err, "ask for fewer nodes")

	c := NewCSDS(many{40, 1 << 20})
	var kept []any
	for err = nil; err == nil; {
		require.Less(t, len(kept), 4, "three of them are within the bound")
		var answer any
		answer, err = c.encode(t.Context(), all)
		kept = append(kept, answer)
	}
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	require.ErrorContains(t, err, "try again")
	runtime.KeepAlive(kept)
	require.Eventually(t, func() bool {
		runtime.GC()
		return c.memory.Load() == 0
	}, 10*time.Second, time.Millisecond, "nothing is left of what is not needed")
	_, err = c.encode(t.Context(), all)
	require.NoError(t, err)
}

// One answer is made at a time, and who goes does not wait.
func TestOneAnswerIsMadeAtATime(t *testing.T) {
	c := NewCSDS(many{1, 1})
	require.NoError(t, c.turns.Do(t.Context(), "another", func() {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := c.encode(ctx, &statusv3.ClientStatusRequest{})
		require.Equal(t, codes.Canceled, status.Code(err))
		require.Zero(t, c.memory.Load())
	}))
}

// leaving is a client that goes, by whom it is seen.
type leaving struct {
	many

	leave func()
	seen  *int
}

func (l leaving) EachClient() iter.Seq[xds.ClientStatus] {
	return func(yield func(xds.ClientStatus) bool) {
		for c := range l.many.EachClient() {
			*l.seen++
			l.leave()
			if !yield(c) {
				return
			}
		}
	}
}

// Who goes is not answered any further, whether clients are meant or not.
func TestNobodyIsLookedAtForWhoHasGone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	seen := 0
	c := NewCSDS(leaving{many{100_000, 1}, cancel, &seen})
	none := []*matcherv3.NodeMatcher{{NodeId: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: "nobody"}}}}
	_, err := c.encode(ctx, &statusv3.ClientStatusRequest{NodeMatchers: none})
	require.Equal(t, codes.Canceled, status.Code(err))
	require.LessOrEqual(t, seen, 1000)
}
