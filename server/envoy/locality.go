package envoy

import (
	"maps"
	"math"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"
)

// placement is how clients prefer endpoints by where both are. As with istiod, there are priorities only with outlier detection, by which
// Envoy finds out that those of one are gone, and with weights for localities there are none.
type placement struct {
	client  profile
	setting *networking.LocalityLoadBalancerSetting // nil if nobody said anything
	fails   bool                                    // over to other priorities
}

func placementOf(client profile, policy *networking.TrafficPolicy) placement {
	p := placement{client: client, setting: policy.GetLoadBalancer().GetLocalityLbSetting()}
	off := p.setting.GetEnabled() != nil && !p.setting.GetEnabled().GetValue()
	p.fails = !off && policy.GetOutlierDetection() != nil && len(p.setting.GetDistribute()) == 0
	if off {
		p.setting = nil
	}
	return p
}

// dependsOnPlace says whether a policy makes a difference between clients by where they are, or by their labels.
func dependsOnPlace(p *policy) bool {
	places := func(lb *networking.LoadBalancerSettings, outliers *networking.OutlierDetection) bool {
		return lb.GetLocalityLbSetting() != nil || outliers != nil
	}
	of := func(t *networking.TrafficPolicy) bool {
		return places(t.GetLoadBalancer(), t.GetOutlierDetection()) || slices.ContainsFunc(t.GetPortLevelSettings(), func(s *networking.TrafficPolicy_PortTrafficPolicy) bool {
			return places(s.GetLoadBalancer(), s.GetOutlierDetection())
		})
	}
	return of(p.traffic) || slices.ContainsFunc(p.subsets, func(s *networking.Subset) bool { return of(s.GetTrafficPolicy()) })
}

// weighs says whether the weights of localities count in a cluster.
func (p placement) weighs() bool {
	return len(p.setting.GetDistribute()) > 0 || p.fails && len(p.setting.GetFailover())+len(p.setting.GetFailoverPriority()) > 0
}

// priority is how far away an endpoint is: the lower, the nearer. Only the order counts.
func (p placement) priority(e *endpoint) int {
	if !p.fails {
		return 0
	}
	labels := 0
	wanted, has := p.setting.GetFailoverPriority(), p.client.labelMap()
	if len(wanted) > 0 && p.client.labelled {
		for i, label := range wanted {
			name, value, given := strings.Cut(label, "=")
			if !given {
				value = has[name]
			}
			if e.labels[name] != value {
				labels = len(wanted) - i
				break
			}
		}
	}
	if len(wanted) > 0 && len(p.setting.GetFailover()) == 0 {
		return labels
	}
	return labels*5 + p.distance(e.locality())
}

func (p placement) distance(l locality) int {
	from := p.client.place
	switch {
	case l == from:
		return 0
	case l.region == from.region && l.zone == from.zone:
		return 1
	case l.region == from.region:
		return 2
	}
	for _, f := range p.setting.GetFailover() {
		if f.GetFrom() == from.region {
			if f.GetTo() != l.region {
				return 4
			}
			break
		}
	}
	return 3
}

// rank makes numbers without gaps of the priorities of an assignment: Envoy refuses others.
func rank(a *endpointv3.ClusterLoadAssignment) {
	used := make(map[uint32]uint32)
	for _, l := range a.GetEndpoints() {
		used[l.GetPriority()] = 0
	}
	for i, p := range slices.Sorted(maps.Keys(used)) {
		used[p] = uint32(i) //nolint:gosec // it is small
	}
	for _, l := range a.GetEndpoints() {
		l.Priority = used[l.GetPriority()]
	}
}

// distribute gives localities the weights that are set for clients of this place. Those that get nothing are left out.
func (p placement) distribute(a *endpointv3.ClusterLoadAssignment) {
	for _, d := range p.setting.GetDistribute() {
		if !p.client.place.isIn(d.GetFrom()) {
			continue
		}
		var kept []*endpointv3.LocalityLbEndpoints
		for _, to := range slices.Sorted(maps.Keys(d.GetTo())) {
			total := uint64(0)
			var within []*endpointv3.LocalityLbEndpoints
			for _, l := range a.GetEndpoints() {
				at := locality{l.GetLocality().GetRegion(), l.GetLocality().GetZone(), l.GetLocality().GetSubZone()}
				if at.isIn(to) && !slices.Contains(kept, l) {
					within = append(within, l)
					total += uint64(l.GetLoadBalancingWeight().GetValue())
				}
			}
			for _, l := range within {
				share := math.Ceil(float64(l.GetLoadBalancingWeight().GetValue()) * float64(d.GetTo()[to]) / float64(total))
				if share > 0 {
					l.LoadBalancingWeight = wrapperspb.UInt32(uint32(min(share, math.MaxUint32)))
					kept = append(kept, l)
				}
			}
		}
		a.Endpoints = slices.DeleteFunc(a.GetEndpoints(), func(l *endpointv3.LocalityLbEndpoints) bool { return !slices.Contains(kept, l) })
		return
	}
}

// isIn says whether the locality is one of those that a pattern stands for: region/zone/subzone, of which the latter may be missing or asterisks.
func (l locality) isIn(pattern string) bool {
	parts := append(strings.SplitN(pattern, "/", 3), "", "")
	fits := func(part, name string) bool { return part == "*" || part == "" || part == name }
	return (parts[0] == "*" || parts[0] == l.region) && fits(parts[1], l.zone) && fits(parts[2], l.subZone)
}

// apply has the weights of localities count in a cluster, if they do.
func (p placement) apply(c *clusterv3.Cluster) {
	if p.weighs() && c.GetLbPolicy() != clusterv3.Cluster_CLUSTER_PROVIDED {
		c.CommonLbConfig.LocalityConfigSpecifier = &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig_{
			LocalityWeightedLbConfig: &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig{},
		}
	}
}
