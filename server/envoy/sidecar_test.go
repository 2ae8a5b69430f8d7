package envoy

import (
	"log/slog"
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
	table := meshOf(t, "sidecar.yaml")
	catalog := New(table, Options{Log: slog.New(slog.DiscardHandler)})
	catalog.update(nil, table.Snapshot(), false, true)
	revision := table.Snapshot().Revision()
	change := func(text string, deleted ...resource.Key) {
		t.Helper()
		table.Apply(decoded(t, text), deleted)
		keys, snap, ok := table.Changes(revision)
		require.True(t, ok)
		catalog.update(keys, snap, true, true)
		revision = snap.Revision()
	}
	knows := func(n *corev3.Node, clusters, domains string) {
		t.Helper()
		gotClusters, gotDomains := knownTo(t, catalog, n)
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
	change(sidecar("root", "istio-system", "{egress: [{hosts: [./*]}], outboundTrafficPolicy: {mode: REGISTRY_ONLY}}"))
	knows(shop, "80||a.internal 80||c.internal 81||a.internal", "a.internal:80 block_all") // to c a route leads
	knows(otherNode, "80||b.internal 80||c.internal", "b.internal:80 c.internal:80 block_all")

	change(sidecar("all", "shop", "{egress: [{hosts: [other/b.internal]}]}"))
	knows(shop, "80||b.internal", "b.internal:80 allow_any")
	knows(otherNode, "80||b.internal 80||c.internal", "b.internal:80 c.internal:80 block_all")

	change(sidecar("all", "shop", "{egress: [{hosts: ['*/*', ~other/b.internal, '~shop/*.example']}]}"))
	knows(shop, "80||a.internal 80||c.internal 81||a.internal", "a.internal:80 c.internal:80 allow_any")
	change(sidecar("all", "shop", "{egress: [{hosts: [other/b.internal]}]}"))

	change(sidecar("some", "shop", "{workloadSelector: {labels: {app: one}}, egress: [{port: {number: 80, name: http, protocol: HTTP}, "+
		"bind: 127.0.0.9, hosts: [shop/*]}, {hosts: [other/c.internal]}]}"))
	knows(shop, "80||a.internal 80||c.internal", "a.internal:80 allow_any")
	require.Contains(t, dump(t, catalog, shop), xds.ListenerURL+"/127.0.0.9_80")
	change("apiVersion: core/v1alpha1\nkind: MeshConfig\nmetadata: {name: istio}\nspec: {outboundTrafficPolicy: {mode: REGISTRY_ONLY}}\n")
	knows(shop, "80||a.internal 80||c.internal", "a.internal:80 block_all")
	var virtual *listenerv3.Listener
	for _, m := range dump(t, catalog, shop) {
		if l, ok := m.(*listenerv3.Listener); ok && l.GetName() == "virtualOutbound" {
			virtual = l
		}
	}
	require.True(t, proto.Equal(translate.ListenerOptions{Restricted: true}.VirtualOutbound(), virtual))

	sidecarKey := func(name, namespace string) resource.Key {
		return resource.Key{Kind: resource.Sidecar, Namespace: namespace, Name: name}
	}
	change("", sidecarKey("some", "shop"), sidecarKey("all", "shop"), sidecarKey("root", "istio-system"),
		resource.Key{Kind: resource.MeshConfig, Name: "istio"})
	knows(shop, allClusters, "a.internal:80 b.internal:80 c.internal:80 allow_any")
	knows(otherNode, allClusters, "a.internal:80 b.internal:80 c.internal:80 allow_any")
}

// Where a route leads that is for requests from another namespace, clients with a Sidecar do not know.
func TestSidecar_SeesTargetsOfOwnRoutesOnly(t *testing.T) {
	const mesh = `
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: all, namespace: default}
spec: {egress: [{hosts: ["*/a.internal"]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: a, namespace: default}
spec:
  hosts: [a.internal]
  http:
  - {match: [{sourceNamespace: other}], route: [{destination: {host: b.internal}}]}
  - {match: [{sourceNamespace: other}, {sourceNamespace: default}], route: [{destination: {host: c.internal}}]}
  - {match: [{uri: {prefix: /d}}, {sourceNamespace: other}], route: [{destination: {host: d.internal}}]}
`
	var text strings.Builder
	for _, name := range []string{"a", "b", "c", "d"} {
		text.WriteString("---\napiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: " + name + ", namespace: default}\n" +
			"spec: {hosts: [" + name + ".internal], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: " +
			"10.0.0.1}]}\n")
	}
	clusters, _ := knownTo(t, catalogOf(t, mesh+text.String()), node("default", "", ""))
	require.Equal(t, []string{"80||a.internal", "80||c.internal", "80||d.internal"}, clusters)
}

// If the kernel passes a sidecar's connections unchanged, and does not redirect them, its listener is transparent.
func TestTransparentSidecars(t *testing.T) {
	for mode, transparent := range map[string]bool{"REDIRECT": false, "TPROXY": true} {
		resources := dumpText(t, observed, node("default", mode, ""))
		require.Equal(t, transparent, resources[xds.ListenerURL+"/virtualOutbound"].(*listenerv3.Listener).GetTransparent().GetValue(), mode)
	}
}
