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

// It is one as soon as an object may tell the clients apart by it.
func TestRelevantAttributes_SeparateProfiles(t *testing.T) {
	nodeIn := func(namespace string) *corev3.Node { return node(namespace, "", "") }
	nodeInRegion := func(region string) *corev3.Node {
		n := nodeIn("x")
		n.Locality = &corev3.Locality{Region: region}
		return n
	}
	gatewayWith := func(folder string) *corev3.Node {
		n := gatewayNode("x")
		n.Metadata.Fields[model.MetadataCredentials] = structpb.NewStringValue(folder)
		return n
	}
	object := func(kind, namespace, spec string) string {
		group := "networking.istio.io/v1"
		if kind == "Telemetry" {
			group = "telemetry.istio.io/v1"
		}
		return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: o, namespace: %s}\nspec: %s\n", group, kind, namespace, spec)
	}
	const service = `{hosts: [o.internal], ports: [{number: 80, name: http, protocol: HTTP}], resolution: NONE%s}`
	atA := "---\n" + object("WorkloadEntry", "x", `{address: 10.0.0.9, locality: a}`)
	for name, tt := range map[string]struct {
		object      string
		client, two *corev3.Node
	}{
		"a service of its namespace":  {object("ServiceEntry", "a", fmt.Sprintf(service, "")), nodeIn("a"), nodeIn("b")},
		"a service for its namespace": {object("ServiceEntry", "x", fmt.Sprintf(service, ", exportTo: [c, a]")), nodeIn("a"), nodeIn("b")},
		"a rule of its namespace":     {object("DestinationRule", "a", `{host: one.internal}`), nodeIn("a"), nodeIn("b")},
		"a rule for its namespace":    {object("DestinationRule", "x", `{host: one.internal, exportTo: [a]}`), nodeIn("a"), nodeIn("b")},
		"routes of its namespace": {
			object("VirtualService", "a", `{hosts: [one.internal], http: [{directResponse: {status: 200}}]}`),
			nodeIn("a"), nodeIn("b"),
		},
		"routes for its namespace": {object("VirtualService", "x",
			`{hosts: [one.internal], exportTo: [a], http: [{directResponse: {status: 200}}]}`), nodeIn("a"), nodeIn("b")},
		"routes for requests from there": {object("VirtualService", "x",
			`{hosts: [one.internal], http: [{match: [{sourceNamespace: a}], directResponse: {status: 200}}]}`), nodeIn("a"), nodeIn("b")},
		"connections from there": {
			object("VirtualService", "x",
				`{hosts: [one.internal], tcp: [{match: [{sourceNamespace: a}], route: [{destination: {host: one.internal}}]}]}`),
			nodeIn("a"), nodeIn("b"),
		},
		"a Sidecar":   {object("Sidecar", "a", `{egress: [{hosts: ["*/*"]}]}`), nodeIn("a"), nodeIn("b")},
		"a Telemetry": {object("Telemetry", "a", `{accessLogging: [{providers: [{name: envoy}]}]}`), nodeIn("a"), nodeIn("b")},
		"a rule by locality": {
			object("DestinationRule", "x", `{host: one.internal, trafficPolicy: {outlierDetection: {}}}`) + atA,
			nodeInRegion("a"), nodeInRegion("b"),
		},
		"a subset by locality, on one port": {object("DestinationRule", "x",
			`{host: one.internal, subsets: [{name: s, trafficPolicy: {portLevelSettings: [{port: {number: 80}, loadBalancer: `+
				`{localityLbSetting: {enabled: true}}}]}}]}`) + atA, nodeInRegion("a"), nodeInRegion("b")},
		"certificates by name": {
			object("Gateway", "x",
				`{servers: [{port: {number: 443, name: s, protocol: HTTPS}, hosts: ["*"], tls: {mode: SIMPLE, credentialName: c}}]}`),
			gatewayWith("/a"),
			gatewayWith("/b"),
		},
		"certificates of clients by name": {object("DestinationRule", "x",
			`{host: one.internal, trafficPolicy: {tls: {mode: SIMPLE, credentialName: c}}}`), gatewayWith("/a"), gatewayWith("/b")},
	} {
		t.Run(name, func(t *testing.T) {
			for objects, profiles := range map[string]int{shared: 1, shared + "---\n" + tt.object: 2} {
				catalog := catalogOf(t, objects)
				for _, n := range []*corev3.Node{tt.client, tt.two} {
					_, _, err := catalog.Collection(t.Context(), n, xds.RouteURL)
					require.NoError(t, err)
				}
				require.Len(t, catalog.following, profiles, objects)
			}
		})
	}
}

// When an object names a client's namespace for the first time, the client keeps all resources that remain visible to
// this namespace.
func TestNewlyNamedNamespace_KeepsResources(t *testing.T) {
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
