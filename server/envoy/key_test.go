package envoy

import (
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/xds"
)

const shared = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: one, namespace: default}
spec: {hosts: [one.internal], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.0.1}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: two, namespace: default}
spec: {hosts: [two.internal], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.0.2}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: v, namespace: shop}
spec: {hosts: [one.internal], exportTo: ["."], http: [{route: [{destination: {host: two.internal}}]}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: d, namespace: default}
spec: {host: one.internal, trafficPolicy: {connectionPool: {tcp: {maxConnections: 5}}}}
`

// What a client says of itself decides what it is told, and never what others are told: here it says what a key made of text had of a VirtualService that
// it does not see.
func TestAClientDoesNotDecideWhatOthersAreTold(t *testing.T) {
	var table memstore.Table
	table.Apply(decoded(t, shared), nil)
	of := resource.Key{Kind: resource.VirtualService, Namespace: "shop", Name: "v"}
	version := table.Snapshot().Get(of).Version()
	honest, evil := node("shop", "", ""), node("other", "", "")
	evil.Metadata.Fields[metadataCredentials] = structpb.NewStringValue(defaultCredentials + "shop/v\x00" + version + "\x00two.internal\x00[80]" + fmt.Sprint("\x00", 0, of))
	told := func(after ...string) map[string]proto.Message {
		c := New(&table, Options{Log: slog.New(slog.DiscardHandler)})
		c.update(nil, table.Snapshot(), false, true)
		for range after {
			dump(t, c, evil)
		}
		return dump(t, c, honest)
	}
	want, got := told(), told("the other one")
	require.True(t, maps.EqualFunc(want, got, func(a, b proto.Message) bool { return proto.Equal(a, b) }), "%v\n%v", want, got)
}

// Whatever translation can read is in the key of what it makes: a part that is added to what it reads must be added to the key, and here.
func TestKeyHasAllOfAView(t *testing.T) {
	for _, of := range []struct {
		what   any
		fields []string
	}{
		{view{}, []string{"host", "service", "policy", "rules", "own", "targets", "servers", "bound", "seen", "client", "objects", "findings"}},
		{target{}, []string{"ports", "policy"}},
		{policy{}, []string{"namespace", "name", "traffic", "subsets", "plaintext", "objects", "from"}},                                          // by from; plaintext is the same in all of a catalog
		{server{}, []string{"Server", "gateway", "place", "kind", "bind", "route"}},                                                              // by the version of the gateway, and the place there
		{service{}, []string{"host", "namespace", "seniority", "ports", "addresses", "resolution", "external", "objects", "from"}},               // by from
		{port{}, []string{"number", "name", "target", "protocol", "endpoints", "owner", "index", "unreached", "late", "part", "spoken", "bind"}}, // by from
	} {
		var fields []string
		for f := range reflect.TypeOf(of.what).Fields() {
			fields = append(fields, f.Name)
		}
		require.Equal(t, of.fields, fields, "%T", of.what)
	}
	keys := map[key]string{(&view{}).key(): "nothing"}
	different := func(v view, what string) {
		t.Helper()
		k := v.key()
		require.Empty(t, keys[k], what)
		keys[k] = what
	}
	for of, p := range map[string]profile{
		"role": {role: proxyless}, "namespace": {namespace: "a"}, "captures": {captures: true}, "labels": {labels: "a"}, "labelled": {labelled: true},
		"on demand": {onDemand: true}, "large": {large: true}, "region": {place: locality{region: "a"}}, "zone": {place: locality{zone: "a"}}, "sub-zone": {place: locality{subZone: "a"}}, "credentials": {credentials: "a"},
	} {
		different(view{client: p}, of)
	}
	require.Equal(t, 10, reflect.TypeFor[profile]().NumField())
	r := &rule[*networking.VirtualService]{version: "1"}
	different(view{host: "a"}, "host")
	different(view{seen: &observation{}}, "what is logged")
	different(view{seen: &observation{from: "a"}}, "what what is logged is made of")
	different(view{service: &service{}}, "service")
	different(view{service: &service{from: "a"}}, "what a service is made of")
	different(view{policy: policy{from: "a"}}, "policy")
	different(view{rules: map[int]*rule[*networking.VirtualService]{0: r}}, "rule")
	different(view{rules: map[int]*rule[*networking.VirtualService]{1: r}}, "rule of another part")
	different(view{own: r}, "own rule")
	different(view{bound: []*rule[*networking.VirtualService]{r}}, "bound rule")
	different(view{targets: map[string]target{"a": {}}}, "target")
	different(view{targets: map[string]target{"a": {ports: []uint32{1}}}}, "port of a target")
	different(view{targets: map[string]target{"a": {policy: policy{from: "a"}}}}, "policy of a target")
	different(view{servers: []server{{gateway: &gateway{version: "1"}}}}, "server")
	different(view{servers: []server{{gateway: &gateway{version: "1"}, place: place{field: "a"}}}}, "place of a server")
	different(view{objects: []resource.Key{{Name: "a"}}}, "object")
	different(view{findings: findings{{why: "a"}}}, "finding")
}

// What was translated for clients that have gone is given back, whatever becomes of the objects meanwhile.
func TestProfilesThatHaveGoneLeaveNothing(t *testing.T) {
	var table memstore.Table
	table.Apply(decoded(t, shared), nil)
	c := New(&table, Options{Log: slog.New(slog.DiscardHandler)})
	c.update(nil, table.Snapshot(), false, true)
	var scopes []*scope
	for _, n := range append(slices.Clone(nodes), nodes...) { // some of them twice, as clients that come and go would have it
		scopes = append(scopes, c.newScope(profileOf(n)))
	}
	since := table.Snapshot().Revision()
	for _, objects := range [][]*resource.Resource{nil, decoded(t, shared)} {
		table.Apply(objects, []resource.Key{{Kind: resource.ServiceEntry, Namespace: "default", Name: "two"}}[len(objects)/4:])
		keys, snap, ok := table.Changes(since)
		c.update(keys, snap, ok, true)
		since = snap.Revision()
	}
	require.NotEmpty(t, c.units.known)
	has := make(map[*told]int)
	for _, s := range scopes {
		for _, told := range s.told {
			has[told]++
		}
	}
	require.Len(t, c.units.known, len(has))
	for _, told := range c.units.known {
		require.Equal(t, has[told], told.users)
	}
	for _, s := range scopes {
		c.drop(s)
	}
	require.Empty(t, c.units.known)
	_, _, err := c.Collection(t.Context(), nodes[0], xds.ClusterURL)
	require.NoError(t, err)
	require.NotEmpty(t, c.units.known)
}
