package index

import (
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	telemetryv1alpha1 "istio.io/api/telemetry/v1alpha1"

	"tributary/server/envoy/model"
	"tributary/server/envoy/telemetry"
)

// Observation returns the logs and traces of the outbound traffic of clients of a profile.
func (m *Mesh) Observation(profile model.Profile, sidecar *Sidecar) *model.Observation {
	return m.observationOf(profile, sidecar, telemetryv1alpha1.WorkloadMode_CLIENT)
}

// observationOf returns the logs and traces of the traffic of clients of a profile, as clients or as servers.
func (m *Mesh) observationOf(
	profile model.Profile, sidecar *Sidecar, mode telemetryv1alpha1.WorkloadMode,
) *model.Observation {
	if profile.Role == model.Proxyless {
		return nil
	}
	observation := &model.Observation{}
	config := m.config()
	telemetries := m.telemetriesOf(profile)
	if config.Spec != nil {
		observation.Objects = append(observation.Objects, config.Key)
	}
	observation.Objects = append(observation.Objects, model.KeysOf(telemetries)...)
	telemetry.AddLogs(observation, telemetries, config, mode)
	telemetry.AddTracing(observation, telemetries, config, mode,
		func(provider *meshv1alpha1.MeshConfig_ExtensionProvider) (string, string, string) {
			service, number, _ := model.ProviderService(provider)
			return m.clusterTo(service, number, profile, sidecar)
		})
	observation.Findings = observation.Findings.Sorted()
	var from model.Digest
	model.AddMessages(&from, observation.Logs...)
	model.AddMessages(&from, observation.Unmatched...)
	if from.Flag(observation.Tracing != nil); observation.Tracing != nil {
		model.AddMessages(&from, observation.Tracing)
	}
	from.Flag(observation.Random)
	from.Findings(observation.Objects, observation.Findings)
	observation.From = string(from)
	return observation
}
