package index

import (
	"cmp"
	"maps"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/server/envoy/model"
)

// registeredBy is the annotation of a WorkloadEntry that names the group behind its registration by istiod.
const registeredBy = "istio.io/autoRegistrationGroup"

// group is a WorkloadGroup, with the labels that istiod gives to its workloads.
type group struct {
	model.WorkloadGroup
	labels map[string]string
}

// setGroup replaces a WorkloadGroup. It touches only hosts with a workload that is, or was, in the group.
func (m *Mesh) setGroup(key resource.Key, object *resource.Resource, spec *networking.WorkloadGroup) {
	m.editNamespace(key.Namespace, func(s *space) {
		if delete(s.groups, key.Name); spec != nil {
			labels := make(map[string]string)
			maps.Copy(labels, spec.GetTemplate().GetLabels())
			maps.Copy(labels, spec.GetMetadata().GetLabels())
			s.groups[key.Name] = &group{model.WorkloadGroup{
				Key: key, Created: object.Created(), Version: object.Version(),
				Spec: spec,
			}, labels}
		}
		for _, workload := range s.workloads {
			previous := workload.group
			if workload.group = s.groupOf(workload); workload.group == previous {
				continue
			}
			for _, e := range s.selectors {
				if e.selected[workload.name] != nil {
					e.touch(m.moved)
				}
			}
		}
	})
}

// groupOf returns the WorkloadGroup of a workload, or nil: the group that registered it; else the matching group with
// the most labels, and of these the oldest.
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
