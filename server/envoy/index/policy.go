package index

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/model"
)

// policy returns the DestinationRules for requests of clients in a namespace to a service: the rules of the clients'
// namespace, else of the service's, else of the root namespace, and of these the ones with the narrowest host. Rules
// with the same exports are merged: the subsets of all, and the policy of the oldest rule that has one. A rule with
// other exports discards the earlier ones, so that, as with istiod, the last group applies.
func (m *Mesh) policy(service *model.Service, namespace string) model.Policy {
	for _, owner := range []string{namespace, service.Namespace, model.RootNamespace} {
		var policy model.Policy
		var from model.Digest
		narrowest := ""
		var exportedTo []string // the exports of the first rule of the group
		for host, destinationRule := range m.Policies.forHost(service.Host) {
			if destinationRule.Key.Namespace != owner || !model.VisibleTo(destinationRule.ExportTo, owner, namespace) ||
				len(destinationRule.Spec.GetWorkloadSelector().GetMatchLabels()) > 0 {
				continue
			}
			if narrowest != "" && host != narrowest {
				break
			}
			if narrowest == "" || !extends(destinationRule.ExportTo, exportedTo) {
				exportedTo = destinationRule.ExportTo
				policy = model.Policy{
					Namespace: destinationRule.Key.Namespace, Name: destinationRule.Key.Name, Plaintext: m.Warn,
				}
				from = nil
			}
			narrowest = host
			from.Object(destinationRule.Key)
			from.Text(destinationRule.Version)
			policy.Objects = append(policy.Objects, destinationRule.Key)
			if policy.Traffic == nil {
				policy.Traffic = destinationRule.Spec.GetTrafficPolicy()
			}
			for _, subset := range destinationRule.Spec.GetSubsets() {
				if !slices.ContainsFunc(policy.Subsets, func(existing *networking.Subset) bool {
					return existing.GetName() == subset.GetName()
				}) {
					policy.Subsets = append(policy.Subsets, subset)
				}
			}
		}
		if narrowest != "" {
			policy.From = string(from)
			return policy
		}
	}
	return model.Policy{}
}

// extends reports whether a rule with exports belongs to the group of a rule with the exports before: it names the same
// namespaces, or more.
func extends(exports, before []string) bool {
	if len(exports) == 0 || len(before) == 0 {
		return len(exports) == len(before)
	}
	return !slices.ContainsFunc(before, func(name string) bool { return !slices.Contains(exports, name) })
}
