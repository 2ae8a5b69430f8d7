package translate

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/model"
)

// placed returns the priority and weight of each locality for a client in eu/a/1, without the localities that are left
// out.
func placed(t *testing.T, setting *networking.LocalityLoadBalancerSetting, labels string, outliers bool) map[string][2]uint32 {
	t.Helper()
	var endpoints []model.Endpoint
	for _, l := range []string{"eu/a/1", "eu/a/2", "eu/b", "us/c", "as/d"} {
		endpoints = append(endpoints, model.Endpoint{
			Address: "10.0.0.1", Spec: &networking.WorkloadEntry{Locality: l},
			Labels: map[string]string{"version": l[:2]},
		})
	}
	port := &model.Port{Number: 80, Endpoints: func() []model.Endpoint { return endpoints }}
	policy := &networking.TrafficPolicy{LoadBalancer: &networking.LoadBalancerSettings{LocalityLbSetting: setting}}
	if outliers {
		policy.OutlierDetection = &networking.OutlierDetection{}
	}
	got := make(map[string][2]uint32)
	a := assignment(port, "c", nil, clusterv3.Cluster_EDS, placementOf(model.Profile{
		Locality: model.Locality{Region: "eu", Zone: "a", SubZone: "1"},
		Labels:   labels, Labelled: labels != "",
	}, policy), new(model.Findings))
	for _, l := range a.GetEndpoints() {
		locality := l.GetLocality()
		got[locality.GetRegion()+locality.GetZone()+locality.GetSubZone()] = [2]uint32{l.GetPriority(), l.GetLoadBalancingWeight().GetValue()}
	}
	return got
}

func TestLocalities(t *testing.T) {
	flat := map[string][2]uint32{"eua1": {0, 1}, "eua2": {0, 1}, "eub": {0, 1}, "usc": {0, 1}, "asd": {0, 1}}
	require.Equal(t, flat, placed(t, nil, "", false), "without outlier detection, no client notices the failure of a priority")
	require.Equal(t, flat, placed(t, &networking.LocalityLoadBalancerSetting{Enabled: wrapperspb.Bool(false)}, "", true))
	require.Equal(t, map[string][2]uint32{"eua1": {0, 1}, "eua2": {1, 1}, "eub": {2, 1}, "usc": {3, 1}, "asd": {3, 1}},
		placed(t, nil, "", true))
	require.Equal(t, map[string][2]uint32{"eua1": {0, 1}, "eua2": {1, 1}, "eub": {2, 1}, "usc": {3, 1}, "asd": {4, 1}},
		placed(t, &networking.LocalityLoadBalancerSetting{Failover: []*networking.LocalityLoadBalancerSetting_Failover{{From: "eu", To: "us"}}},
			"", true))
	require.Equal(t, map[string][2]uint32{"eua1": {1, 1}, "eua2": {1, 1}, "eub": {1, 1}, "usc": {0, 1}, "asd": {1, 1}},
		placed(t, &networking.LocalityLoadBalancerSetting{FailoverPriority: []string{"version"}},
			model.LabelText(map[string]string{"version": "us"}), true))
	require.Equal(t, map[string][2]uint32{"eua1": {0, 40}, "eua2": {0, 40}, "usc": {0, 20}},
		placed(t, &networking.LocalityLoadBalancerSetting{Distribute: []*networking.LocalityLoadBalancerSetting_Distribute{
			{From: "us/*", To: map[string]uint32{"us/*": 100}}, {From: "eu/a/*", To: map[string]uint32{"eu/a/*": 80, "us": 20}},
		}}, "", true))
}
