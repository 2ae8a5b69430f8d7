package envoy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/stretchr/testify/require"

	"tributary/server/xds"
)

// A wildcard stands for whatever ends as it does, also within a label, and of several the longest comes first.
func TestWildcard_MatchesWithinLabel(t *testing.T) {
	resources := dumpText(t, `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: one, namespace: default}
spec: {hosts: [api-eu.internal], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.0.1}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: one, namespace: default}
spec: {host: "*-eu.internal", trafficPolicy: {connectionPool: {tcp: {maxConnections: 7}}}}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: wider, namespace: default}
spec: {host: "*.internal", trafficPolicy: {connectionPool: {tcp: {maxConnections: 8}}}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: one, namespace: default}
spec: {hosts: ["*-eu.internal"], http: [{name: dashed, directResponse: {status: 204}}]}
`, nodes[0])
	cluster := resources[xds.ClusterURL+"/outbound|80||api-eu.internal"].(*clusterv3.Cluster)
	require.Equal(t, uint32(7), cluster.GetCircuitBreakers().GetThresholds()[0].GetMaxConnections().GetValue())
	for _, v := range resources[xds.RouteURL+"/80"].(*routev3.RouteConfiguration).GetVirtualHosts() {
		if v.GetName() == "api-eu.internal:80" {
			require.Equal(t, "dashed", v.GetRoutes()[0].GetName())
		}
	}
}

// For rules of one host in one namespace: a rule with another export than the rule before starts a new rule; one with
// an equal or wider export is merged into it. An export to the namespace by name differs from a private one, and an
// export to all by name from the default, as in istiod.
func TestDestinationRules_EqualExportsMerge(t *testing.T) {
	for exports, want := range map[string][]string{
		". .":           {"0", "1"},
		". default":     {"1"},
		"* -":           {"1"},
		"- *":           {"1"},
		"- -":           {"0", "1"},
		". * .":         {"2"},
		". .,*":         {"0", "1"},
		"default * * .": {"3"},
		". * *":         {"1", "2"},
	} {
		text := "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: one, namespace: default}\n" +
			"spec: {hosts: [one.internal], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: " +
			"10.0.0.1}]}\n"
		for i, to := range strings.Fields(exports) {
			text += fmt.Sprintf("---\napiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: r%d, namespace: default, "+
				"creationTimestamp: \"2020-01-0%dT00:00:00Z\"}\n"+
				"spec: {host: one.internal, subsets: [{name: \"%d\"}], exportTo: [%s]}\n", i, i+1, i,
				strings.ReplaceAll(strings.Trim("'"+strings.ReplaceAll(to, ",", "','")+"'", "-"), "'-'", ""))
		}
		var subsets []string
		for name := range dumpText(t, text, nodes[0]) {
			if parts := strings.Split(name, "|"); strings.HasPrefix(name, xds.ClusterURL) && len(parts) == 4 && parts[2] != "" {
				subsets = append(subsets, parts[2])
			}
		}
		slices.Sort(subsets)
		require.Equal(t, want, subsets, exports)
	}
}

// A subset of a service that passes connections on to their original destination does so, too, whatever its load
// balancing; so does a subset that sets this itself.
func TestPassthroughSubsets(t *testing.T) {
	resources := dumpText(t, `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: one, namespace: default}
spec: {hosts: [one.internal], ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}], resolution: DNS}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: one, namespace: default}
spec:
  host: one.internal
  trafficPolicy: {loadBalancer: {simple: PASSTHROUGH}}
  subsets: [{name: a}, {name: b, trafficPolicy: {loadBalancer: {consistentHash: {useSourceIp: true}}}}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: two, namespace: default}
spec: {hosts: [two.internal], ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}], resolution: STATIC, endpoints: `+
		`[{address: 10.0.0.1}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: two, namespace: default}
spec: {host: two.internal, subsets: [{name: a, trafficPolicy: {loadBalancer: {simple: PASSTHROUGH}}}]}
`, nodes[0])
	for _, name := range []string{"outbound|80|a|one.internal", "outbound|80|b|one.internal", "outbound|80|a|two.internal"} {
		cluster := resources[xds.ClusterURL+"/"+name].(*clusterv3.Cluster)
		require.Equal(t, clusterv3.Cluster_ORIGINAL_DST, cluster.GetType(), name)
		require.Equal(t, clusterv3.Cluster_CLUSTER_PROVIDED, cluster.GetLbPolicy(), name)
		require.Nil(t, cluster.GetOriginalDstLbConfig(), name)
		require.Nil(t, cluster.GetDnsRefreshRate(), name) //nolint:staticcheck // as istiod does
	}
}
