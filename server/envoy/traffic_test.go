package envoy

import (
	"fmt"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/proxy_protocol/v3"
	"github.com/stretchr/testify/require"

	"tributary/server/envoy/translate"
	"tributary/server/xds"
)

// A ring that keeps Envoys busy at each change is served as it is asked for, and named.
func TestLargeRing_ServedAndNamed(t *testing.T) {
	for size, named := range map[int]bool{1024: false, translate.LargeRing: false, 9_000_000: true} {
		rule := decoded(t, fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: d, namespace: default}
spec: {host: one.internal, trafficPolicy: {loadBalancer: {consistentHash: {useSourceIp: true, ringHash: {minimumRingSize: %d}}}}}
`, size))[0]
		findings := strings.Join(WithoutEffect(rule), "\n")
		require.Equal(t, named, strings.Contains(findings, "keeps an Envoy busy"), "%d: %s", size, findings)
	}
}

// TestProxyProtocol checks that PROXY protocol wraps each transport socket of a cluster, as in istiod, and that probes
// do not use it.
func TestProxyProtocol(t *testing.T) {
	const rule = `---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: shop, namespace: default}
spec: {host: shop.internal, trafficPolicy: {proxyProtocol: {version: %s}%s}}
`
	inner := func(socket *corev3.TransportSocket, version corev3.ProxyProtocolConfig_Version) string {
		t.Helper()
		require.Equal(t, "envoy.transport_sockets.upstream_proxy_protocol", socket.GetName())
		var transport proxyprotocolv3.ProxyProtocolUpstreamTransport
		require.NoError(t, socket.GetTypedConfig().UnmarshalTo(&transport))
		require.Equal(t, version, transport.GetConfig().GetVersion())
		return strings.TrimPrefix(transport.GetTransportSocket().GetName(), "envoy.transport_sockets.")
	}
	cluster := func(version, policy string, client *corev3.Node, more string) *clusterv3.Cluster {
		text := strings.ReplaceAll(workloads, "{hosts:", "{location: MESH_INTERNAL, hosts:") + fmt.Sprintf(rule, version, policy) + more
		c, _ := dumpText(t, text, client)[xds.ClusterURL+"/outbound|80||shop.internal"].(*clusterv3.Cluster)
		return c
	}
	require.Equal(t, "raw_buffer", inner(cluster("V1", "", nodes[0], "").GetTransportSocket(), corev3.ProxyProtocolConfig_V1))
	require.Equal(t, "tls", inner(cluster("V2", ", tls: {mode: SIMPLE}", nodes[0], "").GetTransportSocket(), corev3.ProxyProtocolConfig_V2))

	identified := nodeAs(node("default", "NONE", ""), "/etc/identity")
	matches := cluster("V2", "", identified, "").GetTransportSocketMatches()
	require.Len(t, matches, 2)
	require.Equal(t, "tls", inner(matches[0].GetTransportSocket(), corev3.ProxyProtocolConfig_V2))
	require.Equal(t, "raw_buffer", inner(matches[1].GetTransportSocket(), corev3.ProxyProtocolConfig_V2))

	probed := cluster("V2", "", nodes[0], workloadGroup("v1", "app: shop", "{tcpSocket: {port: 1}}"))
	require.Equal(t, "raw_buffer", inner(probed.GetTransportSocket(), corev3.ProxyProtocolConfig_V2))
	require.Equal(t, "probe", probed.GetTransportSocketMatches()[0].GetName())
	require.Equal(t, "envoy.transport_sockets.raw_buffer", probed.GetTransportSocketMatches()[0].GetTransportSocket().GetName())
	require.NotNil(t, probed.GetHealthChecks()[0].GetTransportSocketMatchCriteria())
}
