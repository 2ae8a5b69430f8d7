package index

import (
	"slices"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	telemetryv1alpha1 "istio.io/api/telemetry/v1alpha1"

	"tributary/server/envoy/model"
	"tributary/server/envoy/telemetry"
)

// Observation returns what clients of a profile log and trace of what they send.
func (m *Mesh) Observation(p model.Profile, only *SidecarRule) *model.Observation {
	return m.observationOf(p, only, telemetryv1alpha1.WorkloadMode_CLIENT)
}

// observationOf returns what clients of a profile log and trace as clients or as servers.
func (m *Mesh) observationOf(p model.Profile, only *SidecarRule, as telemetryv1alpha1.WorkloadMode) *model.Observation {
	if p.Role == model.Proxyless {
		return nil
	}
	o := &model.Observation{}
	config := m.config()
	all := m.telemetriesOf(p)
	if config.Spec != nil {
		o.Objects = append(o.Objects, config.Key)
	}
	for _, t := range all {
		o.Objects = append(o.Objects, t.Key)
	}
	telemetry.AddLogs(o, all, config, as)
	telemetry.AddTracing(o, all, config, as, func(of *meshv1alpha1.MeshConfig_ExtensionProvider) (string, string, string) {
		return m.clusterOf(of, p, only)
	})
	o.Findings = o.Findings.Sorted()
	var from model.Digest
	for _, l := range append(slices.Clone(o.Logs), o.Strays...) {
		from.Text(string(model.MustMarshal(l)))
	}
	if from.Flag(o.Tracing != nil); o.Tracing != nil {
		from.Text(string(model.MustMarshal(o.Tracing)))
	}
	from.Flag(o.Random)
	from.Found(o.Objects, o.Findings)
	o.From = string(from)
	return o
}
