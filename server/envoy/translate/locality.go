package translate

import (
	"maps"
	"math"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/model"
)

// placement is the preference of clients for endpoints by locality. As in istiod, priorities need outlier detection,
// and exclude locality weights.
type placement struct {
	client    model.Profile
	setting   *networking.LocalityLoadBalancerSetting // nil if there is none
	failsOver bool                                    // to endpoints of other priorities
	health    *health

	isMutual func(*model.Endpoint) bool // reports whether connections to an endpoint are mutual TLS; nil for none
}

func placementOf(client model.Profile, policy *networking.TrafficPolicy) placement {
	placed := placement{client: client, setting: policy.GetLoadBalancer().GetLocalityLbSetting()}
	off := placed.setting.GetEnabled() != nil && !placed.setting.GetEnabled().GetValue()
	placed.failsOver = !off && policy.GetOutlierDetection() != nil && len(placed.setting.GetDistribute()) == 0
	if off {
		placed.setting = nil
	}
	return placed
}

// localityWeighted reports whether the weights of localities count in a cluster.
func (p placement) localityWeighted() bool {
	return len(p.setting.GetDistribute()) > 0 ||
		p.failsOver && len(p.setting.GetFailover())+len(p.setting.GetFailoverPriority()) > 0
}

// priority returns the distance of an endpoint. Only the order counts.
func (p placement) priority(endpoint *model.Endpoint) int {
	if !p.failsOver {
		return 0
	}
	labels := 0 // the number of preferred labels, from the first one that differs on
	wanted := p.setting.GetFailoverPriority()
	labelMap := p.client.LabelMap()
	if len(wanted) > 0 && p.client.LabelsMatter {
		for i, label := range wanted {
			name, value, given := strings.Cut(label, "=")
			if !given {
				value = labelMap[name]
			}
			if endpoint.Labels[name] != value {
				labels = len(wanted) - i
				break
			}
		}
	}
	if len(wanted) > 0 && len(p.setting.GetFailover()) == 0 {
		return labels
	}
	return labels*5 + p.distance(locality(endpoint))
}

func (p placement) distance(locality model.Locality) int {
	from := p.client.Locality
	switch {
	case locality == from:
		return 0
	case locality.Region == from.Region && locality.Zone == from.Zone:
		return 1
	case locality.Region == from.Region:
		return 2
	}
	for _, f := range p.setting.GetFailover() {
		if f.GetFrom() == from.Region {
			if f.GetTo() != locality.Region {
				return 4
			}
			break
		}
	}
	return 3
}

// compactPriorities renumbers the priorities of an assignment without gaps, which Envoy refuses.
func compactPriorities(assignment *endpointv3.ClusterLoadAssignment) {
	used := make(map[uint32]uint32)
	for _, locality := range assignment.GetEndpoints() {
		used[locality.GetPriority()] = 0
	}
	for i, priority := range slices.Sorted(maps.Keys(used)) {
		used[priority] = uint32(i) //nolint:gosec // it is small
	}
	for _, locality := range assignment.GetEndpoints() {
		locality.Priority = used[locality.GetPriority()]
	}
}

// distribute sets the weights of localities for clients of this locality. Localities without a weight are left out.
func (p placement) distribute(assignment *endpointv3.ClusterLoadAssignment) {
	for _, distribution := range p.setting.GetDistribute() {
		if !p.client.Locality.IsIn(distribution.GetFrom()) {
			continue
		}
		var weighted []*endpointv3.LocalityLbEndpoints
		for _, target := range slices.Sorted(maps.Keys(distribution.GetTo())) {
			total := uint64(0)
			var members []*endpointv3.LocalityLbEndpoints
			for _, group := range assignment.GetEndpoints() {
				locality := model.Locality{
					Region: group.GetLocality().GetRegion(), Zone: group.GetLocality().GetZone(),
					SubZone: group.GetLocality().GetSubZone(),
				}
				if locality.IsIn(target) && !slices.Contains(weighted, group) {
					members = append(members, group)
					total += uint64(group.GetLoadBalancingWeight().GetValue())
				}
			}
			for _, group := range members {
				weight := group.GetLoadBalancingWeight().GetValue()
				part := distribution.GetTo()[target]
				share := math.Ceil(float64(weight) * float64(part) / float64(total))
				if share > 0 {
					group.LoadBalancingWeight = wrapperspb.UInt32(uint32(min(share, math.MaxUint32)))
					weighted = append(weighted, group)
				}
			}
		}
		assignment.Endpoints = slices.DeleteFunc(assignment.GetEndpoints(),
			func(group *endpointv3.LocalityLbEndpoints) bool { return !slices.Contains(weighted, group) })
		return
	}
}

// enableLocalityWeights turns on locality weights in a cluster if they count.
func (p placement) enableLocalityWeights(c *clusterv3.Cluster) {
	if p.localityWeighted() && c.GetLbPolicy() != clusterv3.Cluster_CLUSTER_PROVIDED {
		c.CommonLbConfig.LocalityConfigSpecifier = &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig_{
			LocalityWeightedLbConfig: &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig{},
		}
	}
}
