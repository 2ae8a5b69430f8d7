package envoy

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"tributary/resource"
	"tributary/server/envoy/translate"
	"tributary/server/xds"
)

// knownTo returns the services with clusters, and the domains in the routes of port 80.
func knownTo(t *testing.T, c *Catalog, n *corev3.Node) (clusters, domains []string) {
	t.Helper()
	resources := dump(t, c, n)
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		if cluster, ok := strings.CutPrefix(name, xds.ClusterURL+"/outbound|"); ok {
			clusters = append(clusters, cluster)
		}
	}
	routes, _ := resources[xds.RouteURL+"/80"].(*routev3.RouteConfiguration)
	for _, v := range routes.GetVirtualHosts() {
		domains = append(domains, v.GetName())
	}
	return clusters, domains
}

// A Sidecar limits the services of the clients that it selects, from its creation to its deletion.
func TestSidecar(t *testing.T) {
	s := newSteps(Options{}, slices.Collect(meshOf(t, "sidecar.yaml").Snapshot().All())...)
	knows := func(n *corev3.Node, clusters, domains string) {
		t.Helper()
		gotClusters, gotDomains := knownTo(t, s.c, n)
		require.Equal(t, clusters, strings.Join(gotClusters, " "))
		require.Equal(t, domains, strings.Join(gotDomains, " "))
	}
	allClusters := "80||a.internal 80||b.internal 80||c.internal 81||a.internal"
	shop, otherNode := node("shop", "REDIRECT", ""), node("other", "", "")
	knows(shop, allClusters, "a.internal:80 b.internal:80 c.internal:80 allow_any")

	const head = "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: %, namespace: %}\nspec: "
	sidecar := func(name, namespace, spec string) string {
		return strings.Replace(strings.Replace(head, "%", name, 1), "%", namespace, 1) + spec + "\n"
	}
	s.change(t, sidecar("root", "istio-system", "{egress: [{hosts: [./*]}], outboundTrafficPolicy: {mode: REGISTRY_ONLY}}"))
	knows(shop, "80||a.internal 80||c.internal 81||a.internal", "a.internal:80 block_all") // to c a route leads
	knows(otherNode, "80||b.internal 80||c.internal", "b.internal:80 c.internal:80 block_all")

	s.change(t, sidecar("all", "shop", "{egress: [{hosts: [other/b.internal]}]}"))
	knows(shop, "80||b.internal", "b.internal:80 allow_any")
	knows(otherNode, "80||b.internal 80||c.internal", "b.internal:80 c.internal:80 block_all")

	s.change(t, sidecar("all", "shop", "{egress: [{hosts: ['*/*', ~other/b.internal, '~shop/*.example']}]}"))
	knows(shop, "80||a.internal 80||c.internal 81||a.internal", "a.internal:80 c.internal:80 allow_any")
	s.change(t, sidecar("all", "shop", "{egress: [{hosts: [other/b.internal]}]}"))

	s.change(t, sidecar("some", "shop", "{workloadSelector: {labels: {app: one}}, egress: [{port: {number: 80, name: http, protocol: HTTP}, "+
		"bind: 127.0.0.9, hosts: [shop/*]}, {hosts: [other/c.internal]}]}"))
	knows(shop, "80||a.internal 80||c.internal", "a.internal:80 allow_any")
	require.Contains(t, dump(t, s.c, shop), xds.ListenerURL+"/127.0.0.9_80")
	s.change(t, "apiVersion: core/v1alpha1\nkind: MeshConfig\nmetadata: {name: istio}\nspec: {outboundTrafficPolicy: {mode: REGISTRY_ONLY}}\n")
	knows(shop, "80||a.internal 80||c.internal", "a.internal:80 block_all")
	var virtual *listenerv3.Listener
	for _, m := range dump(t, s.c, shop) {
		if l, ok := m.(*listenerv3.Listener); ok && l.GetName() == "virtualOutbound" {
			virtual = l
		}
	}
	require.True(t, proto.Equal(translate.ListenerOptions{Restricted: true}.VirtualOutbound(), virtual))

	sidecarKey := func(name, namespace string) resource.Key {
		return resource.Key{Kind: resource.Sidecar, Namespace: namespace, Name: name}
	}
	s.change(t, "", sidecarKey("some", "shop"), sidecarKey("all", "shop"), sidecarKey("root", "istio-system"),
		resource.Key{Kind: resource.MeshConfig, Name: "istio"})
	knows(shop, allClusters, "a.internal:80 b.internal:80 c.internal:80 allow_any")
	knows(otherNode, allClusters, "a.internal:80 b.internal:80 c.internal:80 allow_any")
}
