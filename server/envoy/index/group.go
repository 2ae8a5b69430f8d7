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
	m.editNamespace(key.Namespace, func(namespace *space) {
		delete(namespace.groups, key.Name)
		if spec != nil {
			labels := make(map[string]string)
			maps.Copy(labels, spec.GetTemplate().GetLabels())
			maps.Copy(labels, spec.GetMetadata().GetLabels())
			namespace.groups[key.Name] = &group{model.WorkloadGroup{
				Key: key, Created: object.Created(), Version: object.Version(),
				Spec: spec,
			}, labels}
		}
		for _, workload := range namespace.workloads {
			previous := workload.group
			workload.group = namespace.groupOf(workload)
			if workload.group == previous {
				continue
			}
			for _, entry := range namespace.selectors {
				if entry.selected[workload.name] != nil {
					entry.touch(m.moved)
				}
			}
		}
	})
}

// groupOf returns the WorkloadGroup of a workload, or nil: the group that registered it; else the matching group with
// the most labels, and of these the oldest.
func (s *space) groupOf(member *workload) (first *group) {
	if member.registeredBy != "" {
		return s.groups[member.registeredBy]
	}
	for _, candidate := range s.groups {
		if len(candidate.labels) > 0 && model.SelectsLabels(candidate.labels, member.labels) &&
			(first == nil || cmp.Or(len(first.labels)-len(candidate.labels), candidate.Compare(&first.WorkloadGroup)) < 0) {
			first = candidate
		}
	}
	return first
}
