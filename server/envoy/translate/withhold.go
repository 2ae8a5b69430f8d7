package translate

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/model"
)

// withholds reports whether a port or subset gets no endpoints. The policy requires ISTIO_MUTUAL of a client without an
// identity, TLS with certificates that cannot be set up, or a mode of a newer version.
func (t *Translation) withholds(v *model.View, p *model.Port, subset *networking.Subset) bool {
	tls := v.Policy.On(p.Number, subset).GetTls()
	_, exists := networking.ClientTLSSettings_TLSmode_name[int32(tls.GetMode())] // false for a mode of a newer version
	switch {
	case !exists, CannotOriginate(tls):
		return !v.Policy.Plaintext || tls.GetMode() == networking.ClientTLSSettings_SIMPLE
	case !model.IsMutual(tls), v.Client.Identity != "":
		return false
	}
	effect := "there are no endpoints, and requests get 503"
	if v.Policy.Plaintext {
		effect = "plaintext is sent"
	}
	for _, rule := range v.Policy.Objects {
		t.Findings.Note(model.PlaceIn(rule, "spec"),
			"ISTIO_MUTUAL needs an identity, which these clients do not have: %s", effect)
	}
	return !v.Policy.Plaintext
}

// withhold makes c an EDS cluster, which gets no endpoints.
func withhold(c *clusterv3.Cluster) {
	discoverEndpoints(c)
	c.LoadAssignment = nil
	if c.GetLbPolicy() == clusterv3.Cluster_CLUSTER_PROVIDED {
		c.LbPolicy, c.LbConfig = clusterv3.Cluster_LEAST_REQUEST, nil
	}
}
