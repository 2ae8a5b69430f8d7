package envoy

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/envoy/envoytest"
	"tributary/server/envoy/model"
	"tributary/server/xds"
)

// Arbitrary node attributes add no cost as long as they do not change the client's resources.
func TestIrrelevantAttributes_ShareProfile(t *testing.T) {
	catalog := catalogOf(t, shared)
	for i := range 5000 {
		n := node(fmt.Sprint("made-up-", i), "", "")
		n.Locality = &corev3.Locality{Region: fmt.Sprint("region", i), Zone: "z", SubZone: "s"}
		n.Metadata.Fields[model.MetadataCredentials] = structpb.NewStringValue(fmt.Sprint("/folder/", i))
		_, _, err := catalog.Collection(t.Context(), n, xds.RouteURL)
		require.NoError(t, err)
	}
	require.Len(t, catalog.following, 1)
}

// Clients have one profile until an object may tell them apart.
func TestRelevantAttributes_SeparateProfiles(t *testing.T) {
	envoytest.Goldens(t, *update, "testdata/profiles.txtar", func(c *envoytest.Case) {
		for profiles, objects := range map[int][]*resource.Resource{1: nil, 2: c.Objects()} {
			steps := newSteps(Options{}, append(decoded(t, shared), objects...)...)
			for _, file := range []string{"first.yaml", "second.yaml"} {
				_, _, err := steps.c.Collection(t.Context(), envoytest.Read(c, new(corev3.Node), c.Text(file)), xds.RouteURL)
				require.NoError(c, err)
			}
			require.Len(c, steps.c.following, profiles)
		}
	})
}

// When an object names a client's namespace for the first time, the client keeps all resources that remain visible to
// this namespace.
func TestNewlyNamedNamespace_KeepsResources(t *testing.T) {
	t.Parallel()
	s := serve(t, decoded(t, shared)...)
	likes := func(string, string, []byte) string { return "" }
	named, unnamed := s.critic(node("named", "", ""), likes), s.critic(node("other", "", ""), likes)
	hasCluster := func(c *critic, host string) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.resources[xds.ClusterURL+"/outbound|80||"+host]) > 0
	}
	s.eventually(func() bool { return hasCluster(named, "one.internal") && hasCluster(unnamed, "one.internal") }, "all see it")
	service, _, _ := strings.Cut(shared, "---")
	for i, to := range []string{`[named]`, `["*"]`, `[named, more]`} {
		s.table.Apply(decoded(t, strings.Replace(service, "spec: {", "spec: {exportTo: "+to+", ", 1)), nil)
		s.eventually(func() bool { return hasCluster(unnamed, "one.internal") == (i == 1) }, to)
		mark := fmt.Sprint("mark", i)
		s.table.Apply([]*resource.Resource{serviceEntry(t, mark)}, nil)
		s.eventually(func() bool { return hasCluster(named, mark+".internal") }, "it follows")
	}
	named.mu.Lock()
	defer named.mu.Unlock()
	require.Empty(t, named.lost)
}

// A client that connects before the view is synced gets its own resources in the first response.
func TestClientBeforeViewSync_GetsOwnResources(t *testing.T) {
	var table memstore.Table
	catalog := New(&table, Options{Log: slog.New(slog.DiscardHandler)})
	catalog.update(nil, table.Snapshot(), false, false)
	sight := see(t, catalog, []*corev3.Node{node("shop", "", "")})
	first := sight.collections[0][xds.RouteURL]
	table.Apply(decoded(t, shared), nil)
	sight.collections = nil // the earlier collections belong to no view
	catalog.update(nil, table.Snapshot(), false, true)
	require.NotSame(t, first, sight.collections[0][xds.RouteURL])
	scope := catalog.newScope(model.ProfileOf(sight.nodes[0]))
	require.Equal(t, versionsIn(scope.routes), versionsIn(sight.collections[0][xds.RouteURL]))
	require.Contains(t, catalog.current(), scope.scope)
	_, release, err := catalog.Collection(context.Background(), sight.nodes[0], xds.RouteURL)
	require.NoError(t, err)
	release()
}
