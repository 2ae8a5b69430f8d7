package envoy

import (
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"tributary/resource"
	"tributary/server/envoy/model"
)

// Values that Istio's validation takes and Envoy refuses are left out, whatever else is in the same routes or cluster, and named.
func TestRefusedValues_LeftOutAndNamed(t *testing.T) {
	table := meshOf(t, "refused.yaml")
	for r := range table.Snapshot().All() {
		_, err := resource.Validate(r)
		require.NoError(t, err, r.Key())
	}
	find, err := Findings(table)
	require.NoError(t, err)
	findings := make(map[string][]string)
	for r := range table.Snapshot().All() {
		if list := find(r); len(list) > 0 && r.Key().Kind != resource.ServiceEntry {
			findings[r.Key().Name] = append(findings[r.Key().Name], list...)
		}
	}
	for name, field := range map[string]string{
		"status": "spec.http[0]", "abort": "spec.http[0].fault", "path": "spec.http[0]", "authority": "spec.http[0]",
		"redirect-path": "spec.http[0]",
		"redirect-host": "spec.http[0]", "set": "spec.http[0]", "remove": "spec.http[0]", "query": "spec.http[0]",
		"no-header": "spec.trafficPolicy.loadBalancer.consistentHash", "odd-header": "spec.trafficPolicy.loadBalancer.consistentHash",
		"no-query": "spec.trafficPolicy.loadBalancer.consistentHash", "cookie": "spec.trafficPolicy.loadBalancer.consistentHash.httpCookie.ttl",
		"sni": "spec.trafficPolicy.tls.sni",
	} {
		require.NotEmpty(t, findings[name], name)
		require.Contains(t, findings[name][0], field+" ", name)
	}
	require.Empty(t, findings["weights"])
	for _, n := range nodes {
		dump(t, catalogOfTable(table), n) // which validates all
	}
}

// However an address is spelled, it is one: one domain, and one listener.
func TestAddressSpellings_ShareDomainAndListener(t *testing.T) {
	resources := dump(t, catalogOfTable(meshOf(t, "refused.yaml")), node("default", "REDIRECT", ""))
	var domains, listeners int
	for _, m := range resources {
		switch m := m.(type) {
		case *listenerv3.Listener:
			if m.GetAddress().GetSocketAddress().GetAddress() == "fd00::a" {
				listeners++
			}
		case *routev3.RouteConfiguration:
			for _, v := range m.GetVirtualHosts() {
				for _, d := range v.GetDomains() {
					if d == "[fd00::a]" {
						domains++
					}
					require.NotEqual(t, "[FD00::A]", d)
				}
			}
		}
	}
	require.Equal(t, 1, domains)
	require.Equal(t, 1, listeners)
}

func TestWeightsFit(t *testing.T) {
	var weights []*routev3.WeightedCluster_ClusterWeight
	for _, w := range []uint32{2147483647, 2147483647, 2147483647, 1} {
		weights = append(weights, &routev3.WeightedCluster_ClusterWeight{Name: "a", Weight: wrapperspb.UInt32(w)})
	}
	model.ScaleWeights(weights)
	for i, w := range []uint32{1073741823, 1073741823, 1073741823, 1} {
		require.Equal(t, w, weights[i].GetWeight().GetValue())
	}
}

func TestDurations_ShortenedToEnvoyLimit(t *testing.T) {
	for given, want := range map[int64]int64{1: 1, 9223372035: 9223372035, 9223372036: 9223372035, 315576000000: 9223372035} {
		require.Equal(t, want, model.Shortened(&durationpb.Duration{Seconds: given}).GetSeconds())
	}
	require.Nil(t, model.Shortened(nil))
}
