package envoy

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/server/xds"
)

// While an Envoy is heard, its place among the profiles is kept for it, whoever else wants one.
func TestWhoIsHeardKeepsItsPlace(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes as many profiles as there may be")
	}
	const ofHost = maxOfHost - 5
	var all []string
	for i := range maxScopes + 10 {
		all = append(all, fmt.Sprint("ns", i))
	}
	r, err := resource.New(resource.Meta{Key: resource.Key{Kind: resource.VirtualService, Namespace: "default", Name: "many"}}, &networking.VirtualService{
		Hosts: []string{"many.internal"}, ExportTo: append(all, "."), Http: []*networking.HTTPRoute{{DirectResponse: &networking.HTTPDirectResponse{Status: 200}}},
	})
	require.NoError(t, err)
	s := serve(t, r, answering(t, "a", "one."))
	conns := make(map[int]*grpc.ClientConn)
	stranger := func(i int) error {
		at := i / ofHost
		if conns[at] == nil || i%ofHost == 0 {
			dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 5, byte(1+at))}}
			conn, err := grpc.NewClient(s.addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
				return dialer.DialContext(ctx, "tcp", addr)
			}))
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close() })
			conns[at] = conn
		}
		stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conns[at]).DeltaAggregatedResources(context.Background())
		require.NoError(t, err)
		require.NoError(t, stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node(fmt.Sprint("ns", i), "NONE", ""), TypeUrl: xds.RouteURL, ResourceNamesSubscribe: []string{"80"}}))
		_, err = stream.Recv()
		return err
	}
	heard := func() bool {
		s.catalog.judge.mu.Lock()
		defer s.catalog.judge.mu.Unlock()
		return len(s.catalog.judge.hearings) > 0
	}
	asked, held := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	defer release()
	var times atomic.Int32
	honest := s.slowCritic(nodes[0], disliking, func(url string) {
		if url == xds.RouteURL && heard() && times.Add(1) == 1 {
			close(asked)
			<-held
		}
	})
	s.eventually(func() bool { return honest.hasRoutes("one.") }, "")
	for i := range maxScopes - 1 {
		require.NoError(t, stranger(i), "%d", i)
	}
	require.ErrorContains(t, stranger(maxScopes-1), "too many different profiles", "all places are taken")
	s.table.Apply([]*resource.Resource{answering(t, "a", bad)}, nil)
	<-asked
	require.ErrorContains(t, stranger(maxScopes), "too many different profiles", "that of who is heard as well")
	release()
	s.eventually(func() bool { return !heard() }, "")
	s.table.Apply([]*resource.Resource{answering(t, "a", "mended.")}, nil)
	s.eventually(func() bool { return honest.hasRoutes("mended.") }, "")
}
