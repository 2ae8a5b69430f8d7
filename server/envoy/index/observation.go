package index

import (
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
	o.Objects = append(o.Objects, model.KeysOf(all)...)
	telemetry.AddLogs(o, all, config, as)
	telemetry.AddTracing(o, all, config, as, func(of *meshv1alpha1.MeshConfig_ExtensionProvider) (string, string, string) {
		service, number, _ := model.ProviderService(of)
		return m.clusterTo(service, number, p, only)
	})
	o.Findings = o.Findings.Sorted()
	var from model.Digest
	model.AddMessages(&from, o.Logs...)
	model.AddMessages(&from, o.Unmatched...)
	if from.Flag(o.Tracing != nil); o.Tracing != nil {
		model.AddMessages(&from, o.Tracing)
	}
	from.Flag(o.Random)
	from.Found(o.Objects, o.Findings)
	o.From = string(from)
	return o
}
