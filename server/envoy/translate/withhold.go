package translate

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/model"
)

// withholds reports whether a port or subset gets no endpoints, since its policy requires ISTIO_MUTUAL, for which the client has no
// identity, TLS with certificates that cannot be set up, or what is unknown.
func (t *Translation) withholds(v *model.View, p *model.Port, subset *networking.Subset) bool {
	tls := v.Policy.On(p.Number, subset).GetTls()
	_, known := networking.ClientTLSSettings_TLSmode_name[int32(tls.GetMode())] // else it is of a newer version
	switch {
	case !known, CannotOriginate(tls):
		return !v.Policy.Plaintext || tls.GetMode() == networking.ClientTLSSettings_SIMPLE
	case !model.IsMutual(tls), v.Client.Identity != "":
		return false
	}
	why := "there are no endpoints, and requests get 503"
	if v.Policy.Plaintext {
		why = "plaintext is sent"
	}
	for _, rule := range v.Policy.Objects {
		t.Findings.Note(model.Place{Object: rule, Field: "spec"},
			"ISTIO_MUTUAL needs an identity, which these clients do not have: %s", why)
	}
	return !v.Policy.Plaintext
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
