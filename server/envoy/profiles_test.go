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

// Clients are reviewed before a change that separates their profiles, and after one that unites them. A client that
// connects during the review does not bring the change to clients that still have their old profile.
func TestReview_PrecedesChange(t *testing.T) {
	const sidecar = `---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: %s, namespace: shop}
spec: {%segress: [{hosts: ["%s"]}]}
`
	database := serviceAt("db", 90, "{address: 10.0.0.2}")
	newcomer := nodeAt("10.0.0.2", node("shop", "REDIRECT", ""))
	delete(newcomer.GetMetadata().GetFields(), model.MetadataLabels) // its profile stays that of the clients before
	for change, n := range map[string]*corev3.Node{
		fmt.Sprintf(sidecar, "narrow", "", "./web.internal") +
			fmt.Sprintf(sidecar, "wide", "workloadSelector: {labels: {app: two}}, ", "*/*"): nodeWith(
			nodeAt("10.0.0.1", node("shop", "REDIRECT", "")), "app", "two"),
		strings.Replace(database, "spec: {", "spec: {exportTo: [named], ", 1): node("named", "NONE", ""),
	} {
		steps := newSteps(Options{}, decoded(t, serviceAt("web", 80, "{address: 10.0.0.1}")+database)...)
		clustersOf := func(n *corev3.Node) *xds.Collection {
			clusters, release, err := steps.c.Collection(t.Context(), n, xds.ClusterURL)
			require.NoError(t, err)
			t.Cleanup(release)
			return clusters
		}
		hasDatabase := func(clusters *xds.Collection) bool { return clusters.Get("outbound|90||db.internal") != nil }
		former, reviews := clustersOf(n), 0
		steps.c.SetReview(func() {
			clustersOf(newcomer)
			require.True(t, hasDatabase(former))
			reviews++
		})
		steps.change(t, change)
		require.Equal(t, 1, reviews)
		require.False(t, hasDatabase(former), "with the old profile")
		require.True(t, hasDatabase(clustersOf(n)))
		steps.change(t, database, resource.Key{Kind: resource.Sidecar, Namespace: "shop", Name: "narrow"},
			resource.Key{Kind: resource.Sidecar, Namespace: "shop", Name: "wide"})
		require.Equal(t, 2, reviews)
		require.Same(t, former, clustersOf(n))
	}
}

// Conditions of deleted objects go on dividing clients until all scopes have caught up with the change: a client that
// connects meanwhile gets the scope of those before.
func TestConditions_EndAfterCatchUp(t *testing.T) {
	entry := serviceAt("db", 90, "{address: 10.0.0.2}")
	steps := newSteps(Options{}, decoded(t, entry+`---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: v, namespace: odd}
spec: {hosts: [db.internal], http: [{match: [{sourceLabels: {app: one}}], route: [{destination: {host: db.internal}}]}]}
`)...)
	narrowed := func() model.Profile {
		profile := model.ProfileOf(node("odd", "", ""))
		steps.c.mesh.Selectors.Narrow(&profile)
		return profile
	}
	before := narrowed()
	keys := []resource.Key{{Kind: resource.VirtualService, Namespace: "odd", Name: "v"}}
	steps.table.Apply(nil, keys)
	scopes := steps.c.changeMesh(keys, keys, steps.table.Snapshot(), true)
	require.Equal(t, before, narrowed(), "while scopes catch up")
	steps.c.catchUpAll(scopes)
	steps.c.changeProfiles(steps.c.mesh.Selectors.Settle)
	require.NotEqual(t, before, narrowed())
}

// A client that connects before the view is synced gets its own resources in the first response.
func TestClientBeforeViewSync_GetsOwnResources(t *testing.T) {
	var table memstore.Table
	catalog := New(&table, Options{Log: slog.New(slog.DiscardHandler)})
	catalog.reset(table.Snapshot(), false)
	sight := see(t, catalog, []*corev3.Node{node("shop", "", "")})
	first := sight.collections[0][xds.RouteURL]
	table.Apply(decoded(t, shared), nil)
	sight.collections = nil // the earlier collections belong to no view
	catalog.reset(table.Snapshot(), true)
	require.NotSame(t, first, sight.collections[0][xds.RouteURL])
	scope := catalog.newScope(model.ProfileOf(sight.nodes[0]))
	require.Equal(t, versionsIn(scope.routes), versionsIn(sight.collections[0][xds.RouteURL]))
	require.Contains(t, catalog.currentScopes(), scope.scope)
	_, release, err := catalog.Collection(context.Background(), sight.nodes[0], xds.RouteURL)
	require.NoError(t, err)
	release()
}
