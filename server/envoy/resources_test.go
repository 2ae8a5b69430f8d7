package envoy

import (
	"log/slog"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"

	"tributary/server/envoy/envoytest"
	"tributary/server/envoy/model"
)

// Resources returns the resources that a client with the node would get.
func TestResources_MatchClient(t *testing.T) {
	for seed := range uint64(5) {
		mesh := envoytest.New(seed)
		for range 20 {
			mesh.Change()
		}
		catalog := New(&mesh.Table, Options{Log: slog.New(slog.DiscardHandler)})
		catalog.reset(mesh.Table.Snapshot(), false)
		_, _, err := catalog.Resources(t.Context(), node("shop", "NONE", ""), true)
		require.ErrorIs(t, err, errNotSynced)
		catalog.reset(mesh.Table.Snapshot(), true)
		for name, n := range map[string]*corev3.Node{
			"all": node("shop", "NONE", ""), "gateway": {Id: "router~1.1.1.1~a.shop~x"},
			"on demand": demandingNode("shop"),
		} {
			scopeCount := len(catalog.following)
			served, onDemand, err := catalog.Resources(t.Context(), n, true)
			require.NoError(t, err)
			require.Len(t, catalog.following, scopeCount, "no scope is left behind")
			require.Equal(t, name == "on demand", onDemand)
			types := 0
			for _, typed := range served {
				bodies := make(map[string]encoded)
				for _, e := range typed.Entries {
					bodies[e.Name] = encoded(e.Any)
				}
				require.Equal(t, entries(t, catalog, n, typed.TypeURL), bodies, "%s of %s", typed.TypeURL, name)
				types++
			}
			require.Equal(t, map[bool]int{true: 6, false: 5}[onDemand], types)
		}
		_, onDemand, err := catalog.Resources(t.Context(), demandingNode("shop"), false)
		require.NoError(t, err)
		require.False(t, onDemand, "it needs delta")
		_, _, err = catalog.Resources(t.Context(), &corev3.Node{
			Id:       "router~",
			Metadata: node(string(make([]byte, model.MaxProfile)), "", "").GetMetadata(),
		}, false)
		require.ErrorContains(t, err, "the limit is")
		large := node("default", "", "")
		large.GetMetadata().GetFields()[model.MetadataIstio] = structpb.NewStringValue(strings.Repeat("1", model.MaxProfile))
		_, _, err = catalog.Resources(t.Context(), large, false)
		require.ErrorContains(t, err, "the limit is")
	}
}
