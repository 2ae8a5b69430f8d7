package envoy

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/envoy/model"
	"tributary/server/envoy/translate"
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

// What a client says of itself decides what it is told, and never what others are told: here it says what a key made of text had of a
// VirtualService that it does not see.
func TestAClientDoesNotDecideWhatOthersAreTold(t *testing.T) {
	var table memstore.Table
	table.Apply(decoded(t, shared), nil)
	of := resource.Key{Kind: resource.VirtualService, Namespace: "shop", Name: "v"}
	version := table.Snapshot().Get(of).Version()
	honest, evil := node("shop", "", ""), node("other", "", "")
	evil.Metadata.Fields[model.MetadataCredentials] = structpb.NewStringValue(model.DefaultCredentials + "shop/v\x00" + version +
		"\x00two.internal\x00[80]" + fmt.Sprint("\x00", 0, of))
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

// What was translated for clients that have gone is given back, whatever becomes of the objects meanwhile.
func TestProfilesThatHaveGoneLeaveNothing(t *testing.T) {
	var table memstore.Table
	table.Apply(decoded(t, shared), nil)
	c := New(&table, Options{Log: slog.New(slog.DiscardHandler)})
	c.update(nil, table.Snapshot(), false, true)
	var scopes []*workloadView
	for _, n := range append(slices.Clone(nodes), nodes...) { // some of them twice, as clients that come and go would have it
		scopes = append(scopes, c.newScope(model.ProfileOf(n)))
	}
	since := table.Snapshot().Revision()
	for _, objects := range [][]*resource.Resource{nil, decoded(t, shared)} {
		table.Apply(objects, []resource.Key{{Kind: resource.ServiceEntry, Namespace: "default", Name: "two"}}[len(objects)/4:])
		keys, snap, ok := table.Changes(since)
		c.update(keys, snap, ok, true)
		since = snap.Revision()
	}
	require.NotEmpty(t, c.cache.translations)
	has := make(map[*translate.Translation]int)
	for _, s := range scopes {
		for _, told := range s.translations {
			has[told]++
		}
	}
	require.Len(t, c.cache.translations, len(has))
	for _, told := range c.cache.translations {
		require.Equal(t, has[told], told.Users)
	}
	for _, s := range scopes {
		c.dropScope(s.scope)
	}
	require.Empty(t, c.cache.translations)
	_, _, err := c.Collection(t.Context(), nodes[0], xds.ClusterURL)
	require.NoError(t, err)
	require.NotEmpty(t, c.cache.translations)
}
