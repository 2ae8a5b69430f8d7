package envoy

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/envoy/model"
	"tributary/server/xds"
)

// A change does not wait for a scope that is being made, and is part of it when it is made.
func TestChange_DoesNotWaitForNewScope(t *testing.T) {
	var table memstore.Table
	table.Apply(decoded(t, shared), nil)
	catalog := catalogOfTable(&table)
	profile := model.ProfileOf(nodes[0])
	unfinished := newScope(profile, catalog.options.Debounce, &catalog.fullRoutes, &catalog.bodies)
	unfinished.stale = catalog.mesh.AllHosts()
	catalog.following[unfinished] = true
	unfinished.catching.Lock() // as the client that makes it does
	revision := table.Snapshot().Revision()
	table.Apply(nil, []resource.Key{{Kind: resource.ServiceEntry, Namespace: "default", Name: "two"}})
	keys, snap, ok := table.Changes(revision)
	catalog.update(keys, snap, ok, true) // returns
	unfinished.catching.Unlock()
	require.NoError(t, catalog.catchUp(t.Context(), unfinished, catalog.givingWay()))
	require.Equal(t, dumpOf(t, catalog.newScope(profile).byType()), dumpOf(t, unfinished.byType()))
}

// A scope is dropped when no client waits for it any more, and its translations are released.
func TestCanceledScope_LeavesNoState(t *testing.T) {
	var table memstore.Table
	table.Apply(decoded(t, shared), nil)
	catalog := catalogOfTable(&table)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := catalog.makeScope(ctx, model.ProfileOf(nodes[0]))
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, catalog.following)
	requireNoTranslations(t, catalog)
}

// The estimated cost of a scope is its real cost, within a factor of two.
func TestEstimate(t *testing.T) {
	var table memstore.Table
	table.Apply(decoded(t, shared), nil)
	catalog := catalogOfTable(&table)
	for _, n := range nodes {
		p := model.ProfileOf(n)
		s := catalog.newScope(p).scope
		require.InDelta(t, s.cost(), catalog.estimate(p), float64(s.cost()-model.ScopeCost)/2+10)
	}
}

// A scope without clients is not brought up to date by each change, but for the next client.
func TestScopeWithoutClients_UpdatedForNextClient(t *testing.T) {
	var table memstore.Table
	table.Apply(decoded(t, shared), nil)
	c := catalogOfTable(&table)
	_, release, err := c.Collection(t.Context(), nodes[0], xds.ClusterURL)
	require.NoError(t, err)
	clusters := c.currentScopes()[0].clusters
	release()
	release() // does no harm
	before := clusters.Len()
	revision := table.Snapshot().Revision()
	table.Apply(nil, []resource.Key{{Kind: resource.ServiceEntry, Namespace: "default", Name: "two"}})
	keys, snap, ok := table.Changes(revision)
	c.update(keys, snap, ok, true)
	require.Equal(t, before, clusters.Len(), "the scope has no client")
	require.Empty(t, c.currentScopes(), "an outdated scope causes no findings")

	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = c.Collection(canceled, nodes[0], xds.ClusterURL)
	require.Equal(t, codes.Canceled, status.Code(err))
	updated, release, err := c.Collection(t.Context(), nodes[0], xds.ClusterURL)
	require.NoError(t, err)
	defer release()
	require.Same(t, clusters, c.currentScopes()[0].clusters)
	require.Less(t, updated.Len(), before)
	require.Len(t, c.currentScopes(), 1)
	require.Equal(t, dumpOf(t, c.newScope(model.ProfileOf(nodes[0])).byType()), dumpOf(t, c.currentScopes()[0].byType()))
}

// TestCatalog_CheapScopesFirst checks the order of scopes in a change: by the time for each client, then by clients.
func TestCatalog_CheapScopesFirst(t *testing.T) {
	var scopes []*scope
	for _, cost := range []struct{ users, took int64 }{{1, 0}, {7, 0}, {3, 0}, {0, 0}, {1, 500}, {100, 5000}, {0, 400}} {
		s := new(scope)
		s.clients.Store(cost.users)
		s.duration.Store(cost.took)
		scopes = append(scopes, s)
	}
	require.Equal(t, []*scope{scopes[1], scopes[2], scopes[0], scopes[3], scopes[5], scopes[6], scopes[4]}, byCost(scopes))
}
