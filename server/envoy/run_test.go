package envoy

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/xds"
)

// Without clients the objects are not decoded. The first client gets all of them at once.
func TestFirstClient(t *testing.T) {
	var table memstore.Table
	var builder strings.Builder
	table.Apply(decoded(t, shared), nil)
	table.MarkSynced()
	broken := resource.Key{Kind: resource.PeerAuthentication, Namespace: "default", Name: "broken"}
	table.SetInvalid([]resource.Key{broken})
	catalog := New(&table, Options{Log: slog.New(slog.NewTextHandler(&builder, nil))})
	n := node("default", "NONE", "")
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := New(&table, Options{}).Collection(canceled, n, xds.ClusterURL)
	require.Equal(t, codes.Canceled, status.Code(err), "the catalog does not run")

	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = catalog.Run(ctx) })
	defer running.Wait()
	defer stop()
	require.NoError(t, catalog.Alive(ctx))
	require.Empty(t, catalog.mesh.Entries)
	require.Empty(t, builder.String(), "the view may have a valid version, as that of another source")

	coll, release, err := catalog.Collection(ctx, n, xds.ClusterURL)
	require.NoError(t, err)
	defer release()
	require.True(t, coll.Synced())
	require.NotZero(t, coll.Len())
	require.Contains(t, builder.String(), "no version of a security object is valid")
}

// The view changes before the first question, as before the first client.
func TestResources_ViewChangedBefore(t *testing.T) {
	var table memstore.Table
	table.Apply(decoded(t, shared), nil)
	table.MarkSynced()
	catalog := New(&table, Options{Log: slog.New(slog.DiscardHandler)})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = catalog.Run(ctx) })
	defer running.Wait()
	defer stop()
	require.NoError(t, catalog.Alive(ctx))
	table.Apply(decoded(t, target(81)), nil)
	served, _, err := catalog.Resources(ctx, node("default", "NONE", ""), true)
	require.NoError(t, err)
	require.NotEmpty(t, served)
	clusters := served[slices.IndexFunc(served, func(s xds.Served) bool { return s.TypeURL == xds.ClusterURL })]
	require.True(t, slices.ContainsFunc(clusters.Entries, func(e *xds.Entry) bool {
		return e.Name == "outbound|81||target.example.com"
	}))
}
