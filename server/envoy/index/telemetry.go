package index

import (
	"slices"
	"strings"

	"tributary/server/envoy/model"
)

// telemetriesOf returns the Telemetries that are for clients of a profile, those that are overridden first: the oldest one for all of the
// root namespace, that of their own namespace, and all there that select them by labels or refer to their Gateway.
func (m *Mesh) telemetriesOf(p model.Profile) []*model.Telemetry {
	var wide, narrow []*model.Telemetry
	clientLabels := p.LabelMap()
	served := m.servedGateways(p, clientLabels)
	for _, namespace := range slices.Compact([]string{model.RootNamespace, p.Namespace}) {
		first := true
		for _, t := range m.telemetries[namespace] {
			target := policyTargetOf(namespace, t.Spec)
			switch general := !target.refers && len(target.labels) == 0; {
			case general && first:
				wide, first = append(wide, t), false
			case !general && namespace == p.Namespace && target.attaches(p, clientLabels, served):
				narrow = append(narrow, t)
			}
		}
	}
	return append(wide, narrow...)
}

// splitService returns the namespace and the host of a provider's service, of which the former may be left open.
func splitService(service string) (namespace, host string) {
	namespace, host, limited := strings.Cut(strings.ToLower(service), "/")
	if !limited {
		return "", namespace
	}
	return namespace, host
}

// clusterTo returns the host and the cluster of a port of a service, or why there is none. Without a namespace in the name, the host has to
// be that of one only.
func (m *Mesh) clusterTo(service string, number uint32, client model.Profile, only *SidecarRule) (host, cluster, why string) {
	namespace, host := splitService(service)
	if client.OnDemand {
		return "", "", "Envoys that ask for what they use know no clusters beforehand"
	}
	known := m.service(host, client, only)
	of := make(map[string]bool)
	for _, e := range m.Hosts[host] {
		of[e.Key.Namespace] = true
	}
	switch {
	case namespace == "" && len(of) > 1:
		return "", "", "several namespaces have " + host + ": one has to be named, as in namespace/host"
	case known == nil || namespace != "" && known.Namespace != namespace:
		return "", "", "there is no service " + service + " here"
	}
	if !slices.ContainsFunc(known.Ports, func(p model.Port) bool { return p.Number == number }) {
		return "", "", service + " has no port " + model.RouteName(number)
	}
	return known.Host, model.ClusterName(number, "", known.Host), ""
}
