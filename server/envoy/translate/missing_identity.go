package translate

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/model"
)

// checkWithheld reports whether a port or subset gets no endpoints, and adds a finding if the client's missing identity
// is the reason: the policy requires ISTIO_MUTUAL. The other reasons are TLS with certificates that cannot be set up,
// and a mode of a newer version.
func (t *Translation) checkWithheld(view *model.View, port *model.Port, subset *networking.Subset) bool {
	tls := view.Policy.On(port.Number, subset).GetTls()
	_, isKnown := networking.ClientTLSSettings_TLSmode_name[int32(tls.GetMode())] // false for a mode of a newer version
	switch {
	case !isKnown, CannotOriginate(tls):
		return !view.Policy.Plaintext || tls.GetMode() == networking.ClientTLSSettings_SIMPLE
	case !model.IsMutual(tls), view.Client.Identity != "":
		return false
	}
	effect := "there are no endpoints, and requests get 503"
	if view.Policy.Plaintext {
		effect = "plaintext is sent"
	}
	for _, destinationRule := range view.Policy.Objects {
		t.Findings.Note(model.PlaceIn(destinationRule, "spec"),
			"ISTIO_MUTUAL needs an identity, which these clients do not have: %s", effect)
	}
	return !view.Policy.Plaintext
}

// withholdEndpoints makes a cluster an EDS cluster, which gets no endpoints.
func withholdEndpoints(cluster *clusterv3.Cluster) {
	discoverEndpoints(cluster)
	cluster.LoadAssignment = nil
	if cluster.GetLbPolicy() == clusterv3.Cluster_CLUSTER_PROVIDED {
		cluster.LbPolicy = clusterv3.Cluster_LEAST_REQUEST
		cluster.LbConfig = nil
	}
}
