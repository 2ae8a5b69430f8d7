package envoy

import (
	"log/slog"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/server/envoy/model"
	"tributary/server/xds"
)

// TCP services with address ranges get the redirected connections to these ranges, and no other connections of the
// port.
func TestRangesOfAddresses(t *testing.T) {
	const service = "---\napiVersion: networking.istio.io/v1\nkind: ServiceEntry\n"
	const ports = "ports: [{number: 9000, name: tcp, protocol: TCP}], resolution: STATIC}\n"
	table := new(memstore.Table)
	table.Apply(decoded(t, service+"metadata: {name: a, namespace: shop}\nspec: {hosts: [a.internal], addresses: [240.1.0.0/16], "+ports+
		service+"metadata: {name: b, namespace: shop}\nspec: {hosts: [b.internal], addresses: [240.1.2.0/24], "+ports), nil)
	catalog := New(table, Options{Log: slog.New(slog.DiscardHandler)})
	catalog.update(nil, table.Snapshot(), false, true)
	leads := func() (to map[string]string, otherwise string) {
		listener, _ := dump(t, catalog, node("shop", "REDIRECT", ""))[xds.ListenerURL+"/0.0.0.0_9000"].(*listenerv3.Listener)
		cluster := func(chain *listenerv3.FilterChain) string {
			var proxy tcpv3.TcpProxy
			require.NoError(t, chain.GetFilters()[0].GetTypedConfig().UnmarshalTo(&proxy))
			return proxy.GetCluster()
		}
		to = make(map[string]string)
		for _, chain := range listener.GetFilterChains() {
			prefix := ""
			for _, r := range chain.GetFilterChainMatch().GetPrefixRanges() {
				prefix = r.GetAddressPrefix()
			}
			to[prefix] = cluster(chain)
		}
		if listener.GetDefaultFilterChain() != nil {
			otherwise = cluster(listener.GetDefaultFilterChain())
		}
		return to, otherwise
	}
	to, otherwise := leads()
	require.Equal(t, map[string]string{"240.1.0.0": "outbound|9000||a.internal", "240.1.2.0": "outbound|9000||b.internal"}, to)
	require.Equal(t, model.Passthrough, otherwise)

	revision := table.Snapshot().Revision()
	table.Apply(decoded(t, service+"metadata: {name: c, namespace: shop}\nspec: {hosts: [c.internal], "+ports), nil)
	keys, snap, _ := table.Changes(revision)
	catalog.update(keys, snap, true, true)
	to, otherwise = leads()
	require.Equal(t, "outbound|9000||c.internal", otherwise)
	require.Len(t, to, 2)
}
