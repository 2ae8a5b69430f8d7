package envoy

import (
	"fmt"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"tributary/resource"
	"tributary/server/envoy/model"
	"tributary/server/xds"
)

func envoyFilter(namespace, name, spec string) string {
	return fmt.Sprintf("apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {name: %s, namespace: %s}\nspec: "+
		"%s\n---\n", name, namespace, spec)
}

// Only the clients that a patch selects get their own cluster, all others share theirs; after the deletion of the patch
// all clients share one.
func TestPatch_AffectsSelectedClientsOnly(t *testing.T) {
	s := newSteps(Options{}, decoded(t, shared)...)
	clients := []*corev3.Node{
		node("default", "NONE", ""), nodeWith(node("default", "NONE", ""), "app", "two"), node("shop", "NONE", ""), node("default", "",
			"gRPC Go"),
		versioned(node("default", "NONE", "")), gatewayNode("default"),
	}
	expectPatched := func(step string, want ...bool) {
		t.Helper()
		for i, n := range clients {
			for name, m := range dump(t, s.c, n) {
				if cluster, ok := m.(*clusterv3.Cluster); ok && strings.HasSuffix(name, "|one.internal") {
					require.Equal(t, want[i], cluster.GetLbPolicy() == clusterv3.Cluster_RANDOM, "%s: client %d", step, i)
				}
			}
		}
	}
	const random = "patch: {operation: MERGE, value: {lb_policy: RANDOM}}"
	expectPatched("no patch", false, false, false, false, false, false)
	s.change(t, envoyFilter("default", "a", "{workloadSelector: {labels: {app: two}}, configPatches: [{applyTo: CLUSTER, "+random+"}]}"))
	expectPatched("labels", false, true, false, false, false, false)
	s.change(t, envoyFilter("default", "a", "{configPatches: [{applyTo: CLUSTER, match: {context: SIDECAR_OUTBOUND}, "+random+"}]}"))
	expectPatched("namespace", true, true, false, false, true, false)
	s.change(t, envoyFilter("default", "a", "{configPatches: [{applyTo: CLUSTER, match: {context: GATEWAY}, "+random+"}]}"))
	expectPatched("context", false, false, false, false, false, true)
	s.change(t, envoyFilter("default", "a", "{configPatches: [{applyTo: CLUSTER, match: {proxy: {proxyVersion: 1.27.*}}, "+random+"}]}"))
	expectPatched("version", false, false, false, false, true, false)
	s.change(t, envoyFilter("default", "a",
		"{configPatches: [{applyTo: CLUSTER, match: {proxy: {metadata: {NAMESPACE: shop}}}, "+random+"}]}"))
	expectPatched("metadata of another namespace", false, false, false, false, false, false)
	s.change(t, envoyFilter("istio-system", "b", "{configPatches: [{applyTo: CLUSTER, match: {proxy: {metadata: {NAMESPACE: shop}}}, "+
		""+random+"}]}"))
	expectPatched("metadata", false, false, true, false, false, false)
	s.change(t, envoyFilter("istio-system", "b", "{configPatches: [{applyTo: CLUSTER, "+random+"}]}"))
	expectPatched("all", true, true, true, false, true, true)
	key := func(namespace, name string) resource.Key {
		return resource.Key{Kind: resource.EnvoyFilter, Namespace: namespace, Name: name}
	}
	s.change(t, "", key("default", "a"), key("istio-system", "b"))
	expectPatched("no patch left", false, false, false, false, false, false)
	fresh := catalogOfTable(&s.table)
	for _, n := range clients {
		want, got := dump(t, fresh, n), dump(t, s.c, n)
		require.Len(t, got, len(want))
		for name := range want {
			require.True(t, proto.Equal(want[name], got[name]), name)
		}
	}
}

// A patch affects the clients of its namespace, and may change all of their resources.
func TestPatches_AffectClientsOfNamespace(t *testing.T) {
	catalog := catalogOf(t, shared+"---\n"+envoyFilter("default", "a", "{configPatches: [{applyTo: LISTENER, "+
		"match: {context: SIDECAR_INBOUND}, patch: {operation: REMOVE}}]}"))
	n := node("default", "NONE", "")
	dump(t, catalog, n)
	key := resource.Key{Kind: resource.EnvoyFilter, Namespace: "default", Name: "a"}
	require.Contains(t, catalog.Affected(), key, "it matches nothing")
	require.Contains(t, catalog.mesh.MeshWideObjects(model.ProfileOf(n)), key)
	require.NotContains(t, catalog.mesh.MeshWideObjects(model.ProfileOf(node("shop", "NONE", ""))), key)
}

// Routes that are patched are sent in full to clients that ask for virtual hosts, and clusters that are added are there for them.
func TestPatchesOnDemand(t *testing.T) {
	n := node("default", "NONE", "")
	profile := model.ProfileOf(n)
	profile.OnDemand = true
	routes := func(text string) string {
		c := catalogOf(t, text)
		s := c.newScope(profile)
		resources := dumpOf(t, map[string]*xds.Collection{xds.RouteURL: s.routes, xds.ClusterURL: s.clusters})
		require.Equal(t, text != shared, resources[xds.ClusterURL+"/own"] != nil)
		return fmt.Sprint(resources[xds.RouteURL+"/80"])
	}
	require.Contains(t, routes(shared), "vhds")
	patched := routes(shared + "---\n" + envoyFilter("default", "a", "{configPatches: [{applyTo: HTTP_ROUTE, patch: {operation: "+
		"INSERT_FIRST, value: "+
		"{match: {path: /own}, route: {cluster: own}}}}, {applyTo: CLUSTER, patch: {operation: ADD, value: {name: own}}}]}"))
	require.NotContains(t, patched, "vhds")
	require.Contains(t, patched, "one.internal")
	require.Contains(t, patched, "/own")
}
