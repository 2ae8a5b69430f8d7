package translate

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/model"
)

// withholds reports whether a port or subset gets no endpoints. The policy requires ISTIO_MUTUAL of a client without an
// identity, TLS with certificates that cannot be set up, or a mode of a newer version.
func (t *Translation) withholds(view *model.View, port *model.Port, subset *networking.Subset) bool {
	tls := view.Policy.On(port.Number, subset).GetTls()
	_, exists := networking.ClientTLSSettings_TLSmode_name[int32(tls.GetMode())] // false for a mode of a newer version
	switch {
	case !exists, CannotOriginate(tls):
		return !view.Policy.Plaintext || tls.GetMode() == networking.ClientTLSSettings_SIMPLE
	case !model.IsMutual(tls), view.Client.Identity != "":
		return false
	}
	effect := "there are no endpoints, and requests get 503"
	if view.Policy.Plaintext {
		effect = "plaintext is sent"
	}
	for _, rule := range view.Policy.Objects {
		t.Findings.Note(model.PlaceIn(rule, "spec"),
			"ISTIO_MUTUAL needs an identity, which these clients do not have: %s", effect)
	}
	return !view.Policy.Plaintext
}

// withhold makes a cluster an EDS cluster, which gets no endpoints.
func withhold(cluster *clusterv3.Cluster) {
	discoverEndpoints(cluster)
	cluster.LoadAssignment = nil
	if cluster.GetLbPolicy() == clusterv3.Cluster_CLUSTER_PROVIDED {
		cluster.LbPolicy, cluster.LbConfig = clusterv3.Cluster_LEAST_REQUEST, nil
	}
}
