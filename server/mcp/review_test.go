package mcp

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"tributary/internal/testutil"
	"tributary/memstore"
	"tributary/resource"
	"tributary/server/xds"
)

// gated is a catalog that answers only while its gate is open.
type gated struct {
	*Catalog
	gate sync.RWMutex
}

func (g *gated) Collection(ctx context.Context, node *corev3.Node, typeURL string) (*xds.Collection, func(), error) {
	g.gate.RLock()
	defer g.gate.RUnlock()
	return g.Catalog.Collection(ctx, node, typeURL)
}

// Clients that share a family until an object separates them do not delay the commit of that object: their own families
// are made after it, and each client moves to its own.
func TestCommit_DoesNotWaitForFamilies(t *testing.T) {
	const typeURL = "networking.istio.io/v1/ServiceEntry"
	store := memstore.New(resource.Schemas()...)
	c := &gated{Catalog: New(store, Options{})}
	engine := xds.NewServer(c, xds.Options{})
	c.ReviewBy(engine)
	server := grpc.NewServer(engine.ServerOptions()...)
	engine.Register(server)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	stop := testutil.ServeGRPC(t, listener, server)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() {
		require.NoError(t, conn.Close())
		stop()
		engine.Close()
	}()

	const clients = 20
	revision := memstore.Revision(0)
	commit := func(puts ...*resource.Resource) {
		store.Apply(puts, nil)
		keys, snap, ok := store.Changes(revision)
		c.update(keys, snap, ok, true)
		revision = snap.Revision()
	}
	var first []*resource.Resource
	for i := range clients {
		first = append(first, serviceEntry(t, fmt.Sprint("ns", i), "x", "", fmt.Sprint(i, ".example")))
	}
	commit(first...)
	var streams []discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	expect := func(i int, names ...string) {
		t.Helper()
		r, err := streams[i].Recv()
		require.NoError(t, err)
		var got []string
		for _, res := range r.GetResources() {
			got = append(got, res.GetName())
		}
		require.ElementsMatch(t, names, got)
		require.Empty(t, r.GetRemovedResources())
		require.NoError(t, streams[i].Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL, ResponseNonce: r.GetNonce()}))
	}
	for i := range clients {
		stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(t.Context())
		require.NoError(t, err)
		namespaces := []string{"to-come", fmt.Sprint("ns", i)}
		n := node(t, map[string]any{metadataNamespaces: strings.Join(namespaces, ",")})
		require.NoError(t, stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: n, TypeUrl: typeURL}))
		streams = append(streams, stream)
		expect(i, fmt.Sprint("ns", i, "/x"))
	}
	following := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.following)
	}
	before := following()
	c.gate.Lock() // clients wait at the gate
	commit(serviceEntry(t, "to-come", "y", "", "y.example"))
	require.Equal(t, before, following(), "no family is made in a commit")
	c.gate.Unlock()
	for i := range clients {
		expect(i, "to-come/y")
	}
}
