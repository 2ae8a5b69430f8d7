package index

import (
	"slices"
	"strings"

	"tributary/server/envoy/model"
)

// telemetriesOf returns the Telemetries for clients of a profile in ascending precedence: the oldest general one of the
// root namespace, that of the clients' namespace, and those there that select them by labels or refer to their Gateway.
func (m *Mesh) telemetriesOf(profile model.Profile) []*model.Telemetry {
	var wide, narrow []*model.Telemetry
	clientLabels := profile.LabelMap()
	served := m.servedGateways(profile, clientLabels)
	for _, namespace := range slices.Compact([]string{model.RootNamespace, profile.Namespace}) {
		first := true
		for _, object := range m.telemetries[namespace] {
			target := policyTargetOf(namespace, object.Spec)
			switch general := !target.refers && len(target.labels) == 0; {
			case general && first:
				wide, first = append(wide, object), false
			case !general && namespace == profile.Namespace && target.attaches(profile, clientLabels, served):
				narrow = append(narrow, object)
			}
		}
	}
	return append(wide, narrow...)
}

// splitService returns the namespace and the host of a provider's service. The namespace is optional.
func splitService(service string) (namespace, host string) {
	namespace, host, limited := strings.Cut(strings.ToLower(service), "/")
	if !limited {
		return "", namespace
	}
	return namespace, host
}

// clusterTo returns the host and the cluster of a service's port, or the reason why there is none. Without a namespace
// in the name, the host must belong to a single one.
func (m *Mesh) clusterTo(service string, number uint32, client model.Profile, sidecar *Sidecar) (host, cluster,
	why string,
) {
	namespace, host := splitService(service)
	if client.OnDemand {
		return "", "", "Envoys with on-demand discovery have no clusters beforehand"
	}
	target := m.service(host, client, sidecar)
	namespaces := make(map[string]bool)
	for _, e := range m.Hosts[host] {
		namespaces[e.Key.Namespace] = true
	}
	switch {
	case namespace == "" && len(namespaces) > 1:
		return "", "", "several namespaces have " + host + ": one has to be named, as in namespace/host"
	case target == nil || namespace != "" && target.Namespace != namespace:
		return "", "", "there is no service " + service + " here"
	}
	if !slices.ContainsFunc(target.Ports, func(port model.Port) bool { return port.Number == number }) {
		return "", "", service + " has no port " + model.RouteName(number)
	}
	return target.Host, model.ClusterName(number, "", target.Host), ""
}
