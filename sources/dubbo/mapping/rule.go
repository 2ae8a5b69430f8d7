package mapping

import (
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/internal/names"
	"tributary/resource"
	"tributary/sources/registry"
)

// rule returns the DestinationRule of a service, or nil if none is wanted. It has a subset for each version or group of
// the endpoints (more than one only if these are not part of the host), and lets Envoy warm up new endpoints, as
// Dubbo's consumers do. Weights do not grow here: the objects depend only on registrations.
func (m *Mapper) rule(host []registry.Service[ID]) (*resource.Resource, error) {
	if m.o.Subsets == "" && m.o.WarmUp == 0 {
		return nil, nil
	}
	rule := &networking.DestinationRule{Host: host[0].Name.Host, Subsets: m.subsets(host)}
	if m.o.WarmUp > 0 {
		rule.TrafficPolicy = &networking.TrafficPolicy{LoadBalancer: &networking.LoadBalancerSettings{
			LbPolicy: &networking.LoadBalancerSettings_Simple{Simple: networking.LoadBalancerSettings_LEAST_REQUEST},
			Warmup:   &networking.WarmupConfiguration{Duration: durationpb.New(m.o.WarmUp)},
		}}
	}
	return resource.New(resource.Meta{
		Key:    resource.Key{Kind: resource.DestinationRule, Namespace: m.o.Namespace, Name: host[0].Name.Object},
		Origin: resource.Origin{Place: strings.ToValidUTF8(m.Place(host[0].ID), "?")},
	}, rule)
}

// subsets returns a subset for each value of the label.
func (m *Mapper) subsets(host []registry.Service[ID]) (subsets []*networking.Subset) {
	if m.o.Subsets == "" {
		return nil
	}
	values := map[string]bool{}
	for _, s := range host {
		for _, e := range s.Endpoints {
			if v := e.Labels[m.o.Subsets]; v != "" {
				values[v] = true
			}
		}
	}
	for name, value := range subsetNames(slices.Sorted(maps.Keys(values))) {
		subsets = append(subsets, &networking.Subset{Name: name, Labels: map[string]string{m.o.Subsets: value}})
	}
	slices.SortFunc(subsets, func(a, b *networking.Subset) int { return strings.Compare(a.Name, b.Name) })
	return subsets
}

// subsetNames gives each of the sorted values its own name: 1.0.0 is 1-0-0. Of several with one name, all but the value
// that equals it get a hash.
func subsetNames(values []string) map[string]string {
	labels := map[string]string{}
	slices.SortStableFunc(values, func(a, b string) int { return names.Distance(a) - names.Distance(b) })
	for _, value := range values {
		name := names.Clean(value)
		if _, taken := labels[name]; taken || name == "" {
			name = names.Hashed(name, value, names.MaxLabel)
		}
		labels[name] = value
	}
	return labels
}
