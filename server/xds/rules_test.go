package xds

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"tributary/internal/xdstest"
)

// The rules of the protocol that servers get wrong, one by one, over real gRPC.

func bothVariants(t *testing.T, f func(t *testing.T, w *fixture, dial func() *xdstest.Client)) {
	t.Run("sotw", func(t *testing.T) {
		w := newFixture(t)
		f(t, w, w.sotw)
	})
	t.Run("delta", func(t *testing.T) {
		w := newFixture(t)
		f(t, w, w.delta)
	})
}

func (f *fixture) onlyStream() *stream {
	f.server.mu.Lock()
	defer f.server.mu.Unlock()
	for _, st := range f.server.streams {
		return st
	}
	require.FailNow(f.t, "no stream")
	return nil
}

func TestRule16DeltaChunkedSotWWhole(t *testing.T) {
	fixture := newFixture(t)
	var commit Commit
	const n, kib = 600, 10
	for i := range n {
		commit.Put = append(commit.Put, padded(t, fmt.Sprintf("n%04d", i), "1", strings.Repeat("x", kib<<10)))
	}
	fixture.coll(testType).Apply(commit)
	fixture.coll(testType).MarkSynced()
	collect := func(c *xdstest.Client, want int) (responses int) {
		seen := map[string]bool{}
		for len(seen) < want {
			answer := c.Next()
			require.LessOrEqual(t, answer.Size, 4<<20-1024)
			c.Ack(answer)
			responses++
			for _, p := range answer.Puts {
				require.False(t, seen[p], "%s twice", p)
				seen[p] = true
			}
			require.Equal(t, len(seen) == want, answer.Version != "", "only the last one says that the client is at a version")
		}
		return responses
	}
	c := fixture.delta()
	c.Ask(testType)
	require.Greater(t, collect(c, n), 2)
	commit = Commit{Remove: []string{"n0000"}}
	for i := range n {
		commit.Put = append(commit.Put, padded(t, fmt.Sprintf("m%04d", i), "1", strings.Repeat("x", kib<<10)))
	}
	fixture.coll(testType).Apply(commit)
	require.Greater(t, collect(c, n), 2)

	sotw := fixture.conn()
	defer func() { require.NoError(t, sotw.Close()) }()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(sotw).StreamAggregatedResources(ctx, grpc.MaxCallRecvMsgSize(64<<20))
	require.NoError(t, err)
	require.NoError(t, stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: testType}))
	m, err := stream.Recv()
	require.NoError(t, err)
	require.Len(t, m.Resources, 2*n-1)
}

// A client that does not read fills its window and then blocks. No other client notices, and when it reads again it gets the
// newest state and not the ones that it missed.
func TestRule17StuckClientDelaysNoOtherClient(t *testing.T) {
	fixture := newFixture(t, Options{AckTimeout: time.Millisecond})
	fixture.set(testType, "small")
	conn := fixture.conn()
	defer func() { require.NoError(t, conn.Close()) }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stuck, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	require.NoError(t, err)
	require.NoError(t, stuck.Send(&discoveryv3.DiscoveryRequest{TypeUrl: testType}))

	client := fixture.delta()
	client.Subscribe(testType, nil, "small@1")
	const changes = 200
	for i := range changes { // 20 MB for the one that does not read
		fixture.coll(testType).Apply(Commit{Put: []*Entry{padded(t, "big", fmt.Sprint(i), strings.Repeat("x", 100<<10))}})
		client.ExpectAck(testType, nil, fmt.Sprintf("big@%d", i))
	}
	responses := 0
	for {
		m, err := stuck.Recv()
		require.NoError(t, err)
		responses++
		require.NoError(t, stuck.Send(&discoveryv3.DiscoveryRequest{TypeUrl: testType, ResponseNonce: m.Nonce}))
		if len(m.Resources) == 2 && strings.HasPrefix(xdstest.Text(t, m.Resources[0]), fmt.Sprintf("big@%d", changes-1)) {
			break
		}
	}
	require.Less(t, responses, changes/2)
}

func TestDrain(t *testing.T) {
	fixture := newFixture(t)
	fixture.set(testType, "a")
	client := fixture.delta()
	client.Ask(testType)
	client.Expect(testType, "a@1")
	fixture.server.Drain(context.Background(), 0)
	require.Equal(t, codes.Unavailable, grpcstatus.Code(client.Ended()))
	late := fixture.delta()
	require.Equal(t, codes.Unavailable, grpcstatus.Code(late.Ended()))
}

func TestClientClose_EndsStream(t *testing.T) {
	fixture := newFixture(t)
	fixture.set(testType, "a")
	client := fixture.sotw()
	client.Ask(testType)
	client.Expect(testType, "a@1")
	client.Close()
	require.Error(t, client.Ended()) // EOF
	eventually(t, func() bool { return len(fixture.server.Clients()) == 0 })
	require.Empty(t, fixture.coll(testType).wakeups)
}

// TestHalfClosedStream_EndsAfterItsAnswers checks that requests before the end of the client's half are answered as by
// istiod, without acknowledgements, and that changes are not.
func TestHalfClosedStream_EndsAfterItsAnswers(t *testing.T) {
	types := []string{ClusterURL, EndpointURL, ListenerURL, RouteURL}
	for name, dial := range map[string]func(*fixture) *xdstest.Client{
		"sotw": (*fixture).sotw, "delta": (*fixture).delta,
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, Options{AckTimeout: time.Hour})
			c := dial(w)
			for _, url := range types {
				c.Ask(url, "a")
			}
			c.Close()
			c.Silence()
			for _, url := range types {
				w.set(url, "a")
			}
			answered := make(map[string][]string)
			for range types {
				a := c.Next()
				answered[a.TypeURL] = a.Puts
			}
			for _, url := range types {
				require.Equal(t, []string{"a@1"}, answered[url], url)
			}
			require.ErrorIs(t, c.Ended(), io.EOF)
			require.Empty(t, c.Answers)

			if name == "sotw" {
				return // its only response would be too large for the client
			}
			w.large(testType)
			c = dial(w)
			c.Ask(testType)
			c.Close()
			require.ErrorIs(t, c.Ended(), io.EOF)
			for count := 0; count < 3; {
				count += len(c.Next().Puts)
			}
		})
	}
}
