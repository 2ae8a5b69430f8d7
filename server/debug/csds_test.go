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

// manyClients are clients with node IDs of a size.
type manyClients struct{ clients, size int }

func (m manyClients) Served(uint64) []xds.Served { return nil }

func (m manyClients) EachClient() iter.Seq[xds.ClientStatus] {
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
	for _, clients := range []manyClients{{0, 0}, {1, 1}, {3, 4 << 10}, {1000, 100}, {5, 768 << 10}, {10_000, 250}} {
		csds := NewCSDS(clients)
		answer, err := csds.encode(t.Context(), &statusv3.ClientStatusRequest{})
		require.NoError(t, err)
		var got statusv3.ClientStatusResponse
		require.NoError(t, proto.Unmarshal(answer.Materialize(), &got))
		require.Len(t, got.GetConfig(), clients.clients)
		for _, config := range got.GetConfig() {
			require.Len(t, config.GetNode().GetId(), clients.size)
		}
		require.LessOrEqual(t, int64(answer.Len()), csds.memory.Load())
	}
}

// A response has a size limit, and so do all unsent responses together. A collected response does not count any more.
func TestCSDS_LimitsMemoryOfUnsentAnswers(t *testing.T) {
	request := &statusv3.ClientStatusRequest{}
	_, err := NewCSDS(manyClients{maxAnswer/(1<<20) + 1, 1 << 20}).encode(t.Context(), request)
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	require.ErrorContains(t, err, "ask for fewer nodes")

	csds := NewCSDS(manyClients{40, 1 << 20})
	var responses []any
	for err = nil; err == nil; {
		require.Less(t, len(responses), 4, "three of them are within the bound")
		var answer any
		answer, err = csds.encode(t.Context(), request)
		responses = append(responses, answer)
	}
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	require.ErrorContains(t, err, "try again")
	runtime.KeepAlive(responses)
	require.Eventually(t, func() bool {
		runtime.GC()
		return csds.memory.Load() == 0
	}, 10*time.Second, time.Millisecond, "unused responses are collected")
	_, err = csds.encode(t.Context(), request)
	require.NoError(t, err)
}

// Responses are made one after the other, and a canceled request does not wait.
func TestCSDS_CanceledRequestDoesNotWait(t *testing.T) {
	csds := NewCSDS(manyClients{1, 1})
	require.NoError(t, csds.turns.Do(t.Context(), "another", func() {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := csds.encode(ctx, &statusv3.ClientStatusRequest{})
		require.Equal(t, codes.Canceled, status.Code(err))
		require.Zero(t, csds.memory.Load())
	}))
}

// cancelingClients cancel a request as soon as it reads them.
type cancelingClients struct {
	manyClients

	cancel func()
	seen   *int
}

func (l cancelingClients) EachClient() iter.Seq[xds.ClientStatus] {
	return func(yield func(xds.ClientStatus) bool) {
		for c := range l.manyClients.EachClient() {
			*l.seen++
			l.cancel()
			if !yield(c) {
				return
			}
		}
	}
}

// A canceled request stops the search for clients, whether it selects clients or not.
func TestCSDS_CanceledRequestStopsSearch(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	seen := 0
	c := NewCSDS(cancelingClients{manyClients{100_000, 1}, cancel, &seen})
	noClient := []*matcherv3.NodeMatcher{{NodeId: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: "nobody"}}}}
	_, err := c.encode(ctx, &statusv3.ClientStatusRequest{NodeMatchers: noClient})
	require.Equal(t, codes.Canceled, status.Code(err))
	require.LessOrEqual(t, seen, 1000)
}
