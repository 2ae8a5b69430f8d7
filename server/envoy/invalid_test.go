package envoy

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/xds"
)

const twoGateways = `
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: front, namespace: default}
spec: {servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: front, namespace: shop}
spec: {servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}
`

// A security object without a valid version may deny any request: the gateways that it may select refuse all requests
// until it is valid, deleted, or available from another source.
func TestInvalidSecurityObjectsDeny(t *testing.T) {
	deny := resource.Key{Kind: resource.AuthorizationPolicy, Namespace: "shop", Name: "deny"}
	root := resource.Key{Kind: resource.PeerAuthentication, Namespace: "istio-system", Name: "root"}
	for _, warn := range []bool{false, true} {
		var buffer bytes.Buffer
		table := new(memstore.Table)
		table.Apply(decoded(t, twoGateways), nil)
		catalog := New(table, Options{
			Log: slog.New(slog.NewTextHandler(&buffer, nil)), WarnUnenforced: warn,
		})
		catalog.reset(table.Snapshot(), true)
		for _, n := range nodes { // the clients stay
			for _, url := range dumped {
				_, release, err := catalog.Collection(t.Context(), n, url)
				require.NoError(t, err)
				defer release()
			}
		}
		refusing := func(namespace string) bool {
			l := dump(t, catalog, gatewayNode(namespace))[xds.ListenerURL+"/0.0.0.0_80"]
			require.NotNil(t, l)
			text, err := protojson.Marshal(l)
			require.NoError(t, err)
			return strings.Contains(strings.ReplaceAll(string(text), " ", ""), `http.rbac.v3.RBAC","rules":{}}`)
		}
		require.False(t, refusing("shop"))

		setInvalid := func(keys ...resource.Key) {
			table.SetInvalid(keys)
			catalog.apply(nil, table.Snapshot(), true)
		}
		setInvalid(deny)
		require.Equal(t, !warn, refusing("shop"))
		require.False(t, refusing("default"), "it is of another namespace")
		require.Equal(t, 1, strings.Count(buffer.String(), "shop/deny"), buffer.String())

		table.Apply(decoded(t, "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: deny, namespace: shop}\n"+
			"spec: {action: AUDIT}\n"), nil)
		catalog.reset(table.Snapshot(), true)
		require.False(t, refusing("shop"), "another source has it")

		setInvalid(deny, root)
		require.Equal(t, !warn, refusing("shop"), "objects of the root namespace select all gateways")
		require.Equal(t, !warn, refusing("default"))
		setInvalid()
		require.False(t, refusing("shop"))
		require.False(t, refusing("default"))
	}
}

// TestCatalog_ManyInvalidObjects checks that thousands of invalid security objects are logged in a few lines, and cost
// no more than a sort.
func TestCatalog_ManyInvalidObjects(t *testing.T) {
	var keys []resource.Key
	for i := range 30_000 {
		kind := []resource.Kind{resource.AuthorizationPolicy, resource.VirtualService}[i%2]
		keys = append(keys, resource.Key{Kind: kind, Namespace: "evil", Name: fmt.Sprint((i * 7919) % 30_000)})
	}
	var logged strings.Builder
	var table memstore.Table
	table.SetInvalid(keys)
	catalog := New(&table, Options{Log: slog.New(slog.NewTextHandler(&logged, nil))})
	for range 4 {
		catalog.apply(nil, table.Snapshot(), true)
	}
	require.Len(t, catalog.mesh.Invalid, 15_000)
	require.True(t, slices.IsSortedFunc(catalog.mesh.Invalid, resource.Key.Compare))
	require.Equal(t, maxWarned+1, strings.Count(logged.String(), "\n"))
	require.Contains(t, logged.String(), "count=14980")
}
