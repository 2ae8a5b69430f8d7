package translate

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/model"
)

// TestEqualEndpoints_EncodedOnce checks that each endpoint has the part that several share.
func TestEqualEndpoints_EncodedOnce(t *testing.T) {
	plain, heavy := &networking.WorkloadEntry{}, &networking.WorkloadEntry{Weight: 3, Locality: "eu/a/1"}
	labels := map[string]string{"version": "v1"}
	port := &model.Port{Number: 80, Endpoints: func() []model.Endpoint {
		return []model.Endpoint{
			{Address: "10.0.0.1", Spec: plain, Labels: labels},
			{Address: "10.0.0.2", Spec: plain, Labels: labels},
			{Address: "10.0.0.3", Spec: heavy, Labels: labels},
			{Spec: plain},
			{Address: "unix:///run/s", Spec: &networking.WorkloadEntry{}},
		}
	}}
	a := decodedAssignment(assignment(port, "c", nil, clusterv3.Cluster_EDS, placement{}, new(model.Findings)))
	got := make(map[string][]string)
	for _, l := range a.GetEndpoints() {
		for _, lbEndpoint := range l.GetLbEndpoints() {
			host := lbEndpoint.GetEndpoint().GetAddress()
			got[l.GetLocality().GetRegion()] = append(got[l.GetLocality().GetRegion()],
				host.GetSocketAddress().GetAddress()+host.GetPipe().GetPath()+
					lbEndpoint.GetMetadata().GetFilterMetadata()["istio"].GetFields()["workload"].GetStringValue()+
					string(rune('0'+lbEndpoint.GetLoadBalancingWeight().GetValue())))
			require.Empty(t, lbEndpoint.ProtoReflect().GetUnknown())
		}
	}
	require.Equal(t, map[string][]string{
		"":   {"10.0.0.1;;;v1;Kubernetes1", "10.0.0.2;;;v1;Kubernetes1", "/run/s;;;;Kubernetes1"},
		"eu": {"10.0.0.3;;;v1;Kubernetes3"},
	}, got)
	require.Equal(t, uint32(3), a.GetEndpoints()[0].GetLoadBalancingWeight().GetValue())
}
