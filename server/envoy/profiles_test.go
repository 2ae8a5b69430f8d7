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

// What clients make up of themselves costs nothing as long as it makes no difference to what they are told.
func TestWhatMakesNoDifferenceIsNoProfile(t *testing.T) {
	c := catalogOf(t, shared)
	for i := range 5000 {
		n := node(fmt.Sprint("made-up-", i), "", "")
		n.Locality = &corev3.Locality{Region: fmt.Sprint("region", i), Zone: "z", SubZone: "s"}
		n.Metadata.Fields[model.MetadataCredentials] = structpb.NewStringValue(fmt.Sprint("/folder/", i))
		_, _, err := c.Collection(t.Context(), n, xds.RouteURL)
		require.NoError(t, err)
	}
	require.Len(t, c.following, 1)
}

// It is one as soon as an object may tell the clients apart by it.
func TestWhatMakesADifferenceIsAProfile(t *testing.T) {
	in := func(namespace string) *corev3.Node { return node(namespace, "", "") }
	at := func(region string) *corev3.Node {
		n := in("x")
		n.Locality = &corev3.Locality{Region: region}
		return n
	}
	with := func(folder string) *corev3.Node {
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
	for what, of := range map[string]struct {
		object      string
		client, two *corev3.Node
	}{
		"a service of its namespace":  {object("ServiceEntry", "a", fmt.Sprintf(service, "")), in("a"), in("b")},
		"a service for its namespace": {object("ServiceEntry", "x", fmt.Sprintf(service, ", exportTo: [c, a]")), in("a"), in("b")},
		"a rule of its namespace":     {object("DestinationRule", "a", `{host: one.internal}`), in("a"), in("b")},
		"a rule for its namespace":    {object("DestinationRule", "x", `{host: one.internal, exportTo: [a]}`), in("a"), in("b")},
		"routes of its namespace": {
			object("VirtualService", "a", `{hosts: [one.internal], http: [{directResponse: {status: 200}}]}`),
			in("a"), in("b"),
		},
		"routes for its namespace": {object("VirtualService", "x",
			`{hosts: [one.internal], exportTo: [a], http: [{directResponse: {status: 200}}]}`), in("a"), in("b")},
		"routes for requests from there": {object("VirtualService", "x",
			`{hosts: [one.internal], http: [{match: [{sourceNamespace: a}], directResponse: {status: 200}}]}`), in("a"), in("b")},
		"connections from there": {object("VirtualService", "x",
			`{hosts: [one.internal], tcp: [{match: [{sourceNamespace: a}], route: [{destination: {host: one.internal}}]}]}`), in("a"), in("b")},
		"a Sidecar":   {object("Sidecar", "a", `{egress: [{hosts: ["*/*"]}]}`), in("a"), in("b")},
		"a Telemetry": {object("Telemetry", "a", `{accessLogging: [{providers: [{name: envoy}]}]}`), in("a"), in("b")},
		"a rule by locality": {
			object("DestinationRule", "x", `{host: one.internal, trafficPolicy: {outlierDetection: {}}}`) + atA,
			at("a"), at("b"),
		},
		"a subset by locality, on one port": {object("DestinationRule", "x",
			`{host: one.internal, subsets: [{name: s, trafficPolicy: {portLevelSettings: [{port: {number: 80}, loadBalancer: `+
				`{localityLbSetting: {enabled: true}}}]}}]}`) + atA, at("a"), at("b")},
		"certificates by name": {
			object("Gateway", "x",
				`{servers: [{port: {number: 443, name: s, protocol: HTTPS}, hosts: ["*"], tls: {mode: SIMPLE, credentialName: c}}]}`), with("/a"),
			with("/b"),
		},
		"certificates of clients by name": {object("DestinationRule", "x",
			`{host: one.internal, trafficPolicy: {tls: {mode: SIMPLE, credentialName: c}}}`), with("/a"), with("/b")},
	} {
		t.Run(what, func(t *testing.T) {
			for objects, profiles := range map[string]int{shared: 1, shared + "---\n" + of.object: 2} {
				c := catalogOf(t, objects)
				for _, n := range []*corev3.Node{of.client, of.two} {
					_, _, err := c.Collection(t.Context(), n, xds.RouteURL)
					require.NoError(t, err)
				}
				require.Len(t, c.following, profiles, objects)
			}
		})
	}
}

// A client in a namespace that is named for the first time loses nothing that is for this namespace still.
func TestANamespaceThatIsNamedLosesNothing(t *testing.T) {
	s := serve(t, decoded(t, shared)...)
	likes := func(string, string, []byte) string { return "" }
	named, other := s.critic(node("named", "", ""), likes), s.critic(node("other", "", ""), likes)
	has := func(c *critic, host string) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.has[xds.ClusterURL+"/outbound|80||"+host]) > 0
	}
	s.eventually(func() bool { return has(named, "one.internal") && has(other, "one.internal") }, "all see it")
	one, _, _ := strings.Cut(shared, "---")
	for i, to := range []string{`[named]`, `["*"]`, `[named, more]`} {
		s.table.Apply(decoded(t, strings.Replace(one, "spec: {", "spec: {exportTo: "+to+", ", 1)), nil)
		s.eventually(func() bool { return has(other, "one.internal") == (i == 1) }, to)
		mark := fmt.Sprint("mark", i)
		s.table.Apply([]*resource.Resource{serviceEntry(t, mark)}, nil)
		s.eventually(func() bool { return has(named, mark+".internal") }, "it follows")
	}
	named.mu.Lock()
	defer named.mu.Unlock()
	require.Empty(t, named.lost)
}

// Who asks before it is known what there is, is told what is for it from the first.
func TestWhoAsksBeforeTheViewIsKnown(t *testing.T) {
	var table memstore.Table
	c := New(&table, Options{Log: slog.New(slog.DiscardHandler)})
	c.update(nil, table.Snapshot(), false, false)
	s := see(t, c, []*corev3.Node{node("shop", "", "")})
	first := s.all[0][xds.RouteURL]
	table.Apply(decoded(t, shared), nil)
	s.all = nil // what it saw is of no view
	c.update(nil, table.Snapshot(), false, true)
	require.NotSame(t, first, s.all[0][xds.RouteURL])
	own := c.newScope(model.ProfileOf(s.nodes[0]))
	require.Equal(t, versionsIn(own.routes), versionsIn(s.all[0][xds.RouteURL]))
	require.Contains(t, c.current(), own.scope)
	_, done, err := c.Collection(context.Background(), s.nodes[0], xds.RouteURL)
	require.NoError(t, err)
	done()
}
