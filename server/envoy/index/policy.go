package index

import (
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/model"
)

// policy returns what applies to a service when clients of a namespace ask for it: the rules of the clients' own namespace, else those of
// the service's, else those of the root namespace; of these the ones of the narrowest host. One adds to the one before if it is exported
// alike: the subsets of all, and the policy of the oldest one that has some. One that is exported otherwise begins anew, and as with istiod
// the last ones count.
func (m *Mesh) policy(s *model.Service, namespace string) model.Policy {
	for _, of := range []string{namespace, s.Namespace, model.RootNamespace} {
		var p model.Policy
		var from model.Digest
		narrowest := ""
		var to []string // to whom the rule is exported with which the last policy began
		for host, r := range m.Policies.forHost(s.Host) {
			if r.Key.Namespace != of || !model.VisibleTo(r.ExportTo, of, namespace) || len(r.Spec.GetWorkloadSelector().GetMatchLabels()) > 0 {
				continue
			}
			if narrowest != "" && host != narrowest {
				break
			}
			if narrowest == "" || !extends(r.ExportTo, to) {
				to, p = r.ExportTo, model.Policy{Namespace: r.Key.Namespace, Name: r.Key.Name, Plaintext: m.Warn}
				from = nil
			}
			narrowest = host
			from.Object(r.Key)
			from.Text(r.Version)
			p.Objects = append(p.Objects, r.Key)
			if p.Traffic == nil {
				p.Traffic = r.Spec.GetTrafficPolicy()
			}
			for _, subset := range r.Spec.GetSubsets() {
				if !slices.ContainsFunc(p.Subsets, func(known *networking.Subset) bool { return known.GetName() == subset.GetName() }) {
					p.Subsets = append(p.Subsets, subset)
				}
			}
		}
		if narrowest != "" {
			p.From = string(from)
			return p
		}
	}
	return model.Policy{}
}

// extends says whether what is exported to some adds to what was exported to others before: to the same, by the same names, or to more.
func extends(to, before []string) bool {
	if len(to) == 0 || len(before) == 0 {
		return len(to) == len(before)
	}
	return !slices.ContainsFunc(before, func(name string) bool { return !slices.Contains(to, name) })
}
