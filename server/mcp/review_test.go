package mcp

import (
	"context"
	"fmt"
	"sync"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"

	"tributary/internal/xdstest"
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
	address := xdstest.ServeEngine(t, engine)

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
	var streams []*xdstest.Client
	expect := func(i int, name string) {
		t.Helper()
		answer := streams[i].Next()
		require.Equal(t, []string{name}, answer.Names)
		require.Empty(t, answer.Removed)
		streams[i].Ack(answer)
	}
	for i := range clients {
		stream := xdstest.Dial(t, address, true)
		stream.Node = node(t, map[string]any{metadataNamespaces: fmt.Sprint("to-come,ns", i)})
		stream.Ask(typeURL)
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
