package translate

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/model"
)

// IsMutual says whether a policy wants mutual TLS with certificates of the mesh.
func IsMutual(tls *networking.ClientTLSSettings) bool {
	return tls.GetMode() == networking.ClientTLSSettings_ISTIO_MUTUAL
}

// withholds says whether nothing is sent to a port, or to a subset of it, since it would be plaintext where ISTIO_MUTUAL is wanted.
func withholds(p *model.Policy, port uint32, subset *networking.Subset) bool {
	return !p.Plaintext && IsMutual(p.On(port, subset).GetTls())
}

// withhold makes c a cluster of endpoints that are discovered, of which there are none.
func withhold(c *clusterv3.Cluster) {
	c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}
	c.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{ServiceName: c.GetName(), EdsConfig: Ads()}
	c.LoadAssignment = nil
	if c.GetLbPolicy() == clusterv3.Cluster_CLUSTER_PROVIDED {
		c.LbPolicy, c.LbConfig = clusterv3.Cluster_LEAST_REQUEST, nil
	}
}
