package index

import (
	"cmp"
	"maps"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/server/envoy/model"
)

// registeredBy is the annotation that names the group of a WorkloadEntry that istiod has made for a workload of it.
const registeredBy = "istio.io/autoRegistrationGroup"

// group is a WorkloadGroup, with the labels that istiod gives to its workloads.
type group struct {
	model.WorkloadGroup
	labels map[string]string
}

// setGroup replaces a WorkloadGroup. Only hosts with a workload that is, or was, in it are touched.
func (m *Mesh) setGroup(key resource.Key, r *resource.Resource, spec *networking.WorkloadGroup) {
	m.in(key.Namespace, func(s *space) {
		if delete(s.groups, key.Name); spec != nil {
			labels := make(map[string]string)
			maps.Copy(labels, spec.GetTemplate().GetLabels())
			maps.Copy(labels, spec.GetMetadata().GetLabels())
			s.groups[key.Name] = &group{model.WorkloadGroup{Key: key, Created: r.Created(), Version: r.Version(), Spec: spec}, labels}
		}
		for _, w := range s.workloads {
			was := w.group
			if w.group = s.groupOf(w); w.group == was {
				continue
			}
			for _, e := range s.selectors {
				if e.selected[w.name] != nil {
					e.touch(m.moved)
				}
			}
		}
	})
}

// groupOf returns the WorkloadGroup of a workload, or nil: the one that it was registered by; else, of those whose labels it has, the one
// with the most labels, and of these the oldest.
func (s *space) groupOf(w *workload) (first *group) {
	if w.registeredBy != "" {
		return s.groups[w.registeredBy]
	}
	for _, g := range s.groups {
		if len(g.labels) > 0 && model.SelectsLabels(g.labels, w.labels) &&
			(first == nil || cmp.Or(len(first.labels)-len(g.labels), g.Compare(&first.WorkloadGroup)) < 0) {
			first = g
		}
	}
	return first
}
