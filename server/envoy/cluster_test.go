package envoy

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/stretchr/testify/require"

	"tributary/server/xds"
)

// gRPC clients resolve a name if it is the only one of a cluster, and refuse all of a cluster of any other kind of names.
func TestNamesForGRPCClients(t *testing.T) {
	resources := dumpText(t, `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: self, namespace: default}
spec: {hosts: [self.internal], ports: [{number: 80, name: grpc, protocol: GRPC}], resolution: DNS}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: several, namespace: default}
spec: {hosts: [several.internal], ports: [{number: 80, name: grpc, protocol: GRPC}], resolution: DNS, endpoints: [{address: `+
		`a.example.com}, {address: b.example.com}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: addresses, namespace: default}
spec: {hosts: [addresses.internal], ports: [{number: 80, name: grpc, protocol: GRPC}], resolution: DNS, endpoints: [{address: `+
		`10.0.0.1}, {address: 10.0.0.2}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: none, namespace: default}
spec: {hosts: [none.internal], ports: [{number: 80, name: grpc, protocol: GRPC}], resolution: DNS_ROUND_ROBIN, workloadSelector: `+
		`{labels: {app: none}}}
`, nodes[3])
	cluster := func(host string) *clusterv3.Cluster {
		return resources[xds.ClusterURL+"/outbound|80||"+host].(*clusterv3.Cluster)
	}
	names := func(a *endpointv3.ClusterLoadAssignment) (names []string) {
		for _, l := range a.GetEndpoints() {
			for _, e := range l.GetLbEndpoints() {
				names = append(names, e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress())
			}
		}
		return names
	}
	for host, want := range map[string]string{"self.internal": "self.internal", "several.internal": "a.example.com"} {
		require.Equal(t, clusterv3.Cluster_LOGICAL_DNS, cluster(host).GetType(), host)
		require.Equal(t, []string{want}, names(cluster(host).GetLoadAssignment()), host)
	}
	for host, want := range map[string][]string{"addresses.internal": {"10.0.0.1", "10.0.0.2"}, "none.internal": nil} {
		require.Equal(t, clusterv3.Cluster_EDS, cluster(host).GetType(), host)
		require.Equal(t, want, names(resources[xds.EndpointURL+"/outbound|80||"+host].(*endpointv3.ClusterLoadAssignment)), host)
	}
}
