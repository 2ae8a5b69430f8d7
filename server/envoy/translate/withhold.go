package translate

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/model"
)

// IsMutual reports whether a policy requires mutual TLS with certificates of the mesh.
func IsMutual(tls *networking.ClientTLSSettings) bool {
	return tls.GetMode() == networking.ClientTLSSettings_ISTIO_MUTUAL
}

// withholds reports whether a port or subset gets no endpoints: its policy requires ISTIO_MUTUAL, and traffic would be plaintext.
func withholds(p *model.Policy, port uint32, subset *networking.Subset) bool {
	return !p.Plaintext && IsMutual(p.On(port, subset).GetTls())
}

// withhold makes c an EDS cluster, which gets no endpoints.
func withhold(c *clusterv3.Cluster) {
	c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}
	c.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{ServiceName: c.GetName(), EdsConfig: Ads()}
	c.LoadAssignment = nil
	if c.GetLbPolicy() == clusterv3.Cluster_CLUSTER_PROVIDED {
		c.LbPolicy, c.LbConfig = clusterv3.Cluster_LEAST_REQUEST, nil
	}
}
