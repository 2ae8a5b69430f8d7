package envoy

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"github.com/stretchr/testify/require"

	"tributary/server/envoy/model"
	"tributary/server/envoy/translate"
	"tributary/server/xds"
)

// A timeout is one of the route to Envoys, as with istiod, and one of the stream to gRPC clients, which know no other.
func TestTimeouts(t *testing.T) {
	const mesh = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: a, namespace: default}
spec: {hosts: [a.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.0.1}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: a, namespace: default}
spec: {hosts: [a.example], http: [{timeout: 3s, match: [{uri: {prefix: /a}}], route: [{destination: {host: a.example}}]}, {route: ` +
		`[{destination: {host: a.example}}]}]}
`
	routesOf := func(configs map[string]*routev3.RouteConfiguration, name string) []*routev3.Route {
		for _, v := range configs[name].GetVirtualHosts() {
			if v.GetName() == "a.example:80" {
				return v.GetRoutes()
			}
		}
		return nil
	}
	configurations := func(n *corev3.Node) map[string]*routev3.RouteConfiguration {
		configs := make(map[string]*routev3.RouteConfiguration)
		for _, m := range dumpText(t, mesh, n) {
			if r, ok := m.(*routev3.RouteConfiguration); ok {
				configs[r.GetName()] = r
			}
		}
		return configs
	}
	routes := routesOf(configurations(nodes[0]), "80")
	require.Len(t, routes, 2)
	for i, seconds := range []int64{3, 0} {
		action := routes[i].GetRoute()
		require.Equal(t, seconds, action.GetTimeout().GetSeconds())
		require.Equal(t, seconds, action.GetMaxGrpcTimeout().GetSeconds()) //nolint:staticcheck // as istiod does
		require.NotNil(t, action.GetMaxGrpcTimeout())                      //nolint:staticcheck // as istiod does
		require.Nil(t, action.GetMaxStreamDuration(), "it would cut uploads and websockets")
	}
	routes = routesOf(configurations(nodes[3]), model.ClusterName(80, "", "a.example"))
	require.Len(t, routes, 2)
	for i, seconds := range []int64{3, 0} {
		action := routes[i].GetRoute()
		require.Equal(t, seconds, action.GetMaxStreamDuration().GetMaxStreamDuration().GetSeconds())
		require.Nil(t, action.GetMaxGrpcTimeout()) //nolint:staticcheck // as istiod does
	}
}

// Without redirection the oldest service of TLS on a port has connections that ask for no server name, or for one that
// no service has.
func TestTLSWithoutServerName(t *testing.T) {
	const firstService = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: a, namespace: default, creationTimestamp: "2020-01-01T00:00:00Z"}
spec: {hosts: [a.example], ports: [{number: 443, name: tls, protocol: TLS}], resolution: STATIC, endpoints: [{address: 10.0.0.1}]}
`
	const two = `---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: b, namespace: default, creationTimestamp: "2021-01-01T00:00:00Z"}
spec: {hosts: [b.example], ports: [{number: 443, name: tls, protocol: TLS}], resolution: STATIC, endpoints: [{address: 10.0.0.2}]}
`
	listener := dumpText(t, firstService, nodes[0])[xds.ListenerURL+"/127.0.0.1_443"].(*listenerv3.Listener)
	require.Len(t, listener.GetFilterChains(), 1)
	require.Nil(t, listener.GetFilterChains()[0].GetFilterChainMatch())
	require.Empty(t, listener.GetListenerFilters(), "plain TCP needs no TLS inspector")

	listener = dumpText(t, firstService+two, nodes[0])[xds.ListenerURL+"/127.0.0.1_443"].(*listenerv3.Listener)
	require.Len(t, listener.GetFilterChains(), 2)
	require.Nil(t, listener.GetFilterChains()[0].GetFilterChainMatch())
	require.Equal(t, []string{"b.example"}, listener.GetFilterChains()[1].GetFilterChainMatch().GetServerNames())
	require.Len(t, listener.GetListenerFilters(), 1)
}

// Where a policy names the server to ask for, the host of requests has no part in how its certificate is verified, as
// with istiod.
func TestServerNameOfAPolicy(t *testing.T) {
	for sni, want := range map[string]bool{"": true, "inner.example": false} {
		resources := dumpText(t, `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: a, namespace: default}
spec: {hosts: [a.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.0.1}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: a, namespace: default}
spec: {host: a.example, trafficPolicy: {tls: {mode: SIMPLE, sni: "`+sni+`"}}}
`, nodes[0])
		c := resources[xds.ClusterURL+"/outbound|80||a.example"].(*clusterv3.Cluster)
		var options httpv3.HttpProtocolOptions
		if a := c.GetTypedExtensionProtocolOptions()[translate.HTTPOptions]; a != nil {
			require.NoError(t, a.UnmarshalTo(&options))
		}
		require.Equal(t, want, options.GetUpstreamHttpProtocolOptions().GetAutoSni(), sni)
		require.Equal(t, want, options.GetUpstreamHttpProtocolOptions().GetAutoSanValidation(), sni)
	}
}

// Whatever lets an address with a zone through, Envoy is not sent it.
func TestZonedAddress_NotSent(t *testing.T) {
	const address = "fe80::1%eth0"
	for _, node := range nodes {
		for name, m := range dumpText(t, `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: a, namespace: default}
spec: {hosts: [a.example], addresses: `+
			`["`+address+`"], ports: [{number: 80, name: tcp, protocol: TCP}], resolution: STATIC, endpoints: [{address: `+
			`"`+address+`"}, {address: 10.0.0.1}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: b, namespace: default}
spec: {hosts: [b.example], ports: [{number: 81, name: http, protocol: HTTP}], resolution: DNS, endpoints: [{address: "`+address+`"}]}
`, node) {
			require.NotContains(t, m.(interface{ String() string }).String(), address, name)
			if a, ok := m.(*endpointv3.ClusterLoadAssignment); ok && a.GetClusterName() == model.ClusterName(80, "", "a.example") {
				require.Len(t, a.GetEndpoints(), 1, name)
			}
		}
	}
}
