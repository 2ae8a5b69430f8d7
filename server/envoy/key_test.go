package envoy

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"
	"time"

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

// A client's node determines its own resources, and never those of other clients: here it contains the text of a cache
// key for a VirtualService that it cannot see.
func TestNodeMetadata_AffectsOnlyItsOwnClient(t *testing.T) {
	var table memstore.Table
	table.Apply(decoded(t, shared), nil)
	key := resource.Key{Kind: resource.VirtualService, Namespace: "shop", Name: "v"}
	version := table.Snapshot().Get(key).Version()
	honest, evil := node("shop", "", ""), node("other", "", "")
	evil.Metadata.Fields[model.MetadataCredentials] = structpb.NewStringValue(model.DefaultCredentials + "shop/v\x00" + version +
		"\x00two.internal\x00[80]" + fmt.Sprint("\x00", 0, key))
	resources := func(after ...string) map[string]proto.Message {
		catalog := catalogOfTable(&table)
		for range after {
			dump(t, catalog, evil)
		}
		return dump(t, catalog, honest)
	}
	want, got := resources(), resources("the other one")
	require.True(t, maps.EqualFunc(want, got, func(a, b proto.Message) bool { return proto.Equal(a, b) }), "%v\n%v", want, got)
}

// Translations for disconnected clients are released, whatever changes the objects have meanwhile.
func TestDroppedProfiles_ReleaseTranslations(t *testing.T) {
	var table memstore.Table
	table.Apply(decoded(t, shared), nil)
	catalog := catalogOfTable(&table)
	var scopes []*workloadView
	for _, n := range append(slices.Clone(nodes), nodes...) { // some of them twice, as clients that come and go would have it
		scopes = append(scopes, catalog.newScope(model.ProfileOf(n)))
	}
	revision := table.Snapshot().Revision()
	for _, objects := range [][]*resource.Resource{nil, decoded(t, shared)} {
		table.Apply(objects, []resource.Key{{Kind: resource.ServiceEntry, Namespace: "default", Name: "two"}}[len(objects)/4:])
		keys, snap, ok := table.Changes(revision)
		catalog.update(keys, snap, ok, true)
		revision = snap.Revision()
	}
	used := make(map[*translate.Translation]bool)
	for _, s := range scopes {
		for _, translation := range s.translations {
			used[translation] = true
		}
	}
	require.NotEmpty(t, used)
	require.Eventually(t, func() bool {
		runtime.GC()
		return sizeOf(&catalog.bodies.translations) == len(used)
	}, 20*time.Second, 10*time.Millisecond)
	clear(used)
	for _, s := range scopes {
		catalog.dropScope(s.scope)
	}
	requireNoTranslations(t, catalog)
	_, _, err := catalog.Collection(t.Context(), nodes[0], xds.ClusterURL)
	require.NoError(t, err)
	require.NotZero(t, sizeOf(&catalog.bodies.translations))
}
