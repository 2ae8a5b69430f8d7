package model

import (
	"strings"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	telemetryv1alpha1 "istio.io/api/telemetry/v1alpha1"

	"tributary/resource"
)

// StandardOutput is the file of logs that go to the standard output.
const StandardOutput = "/dev/stdout"

// MeshConfig is a MeshConfig.
type MeshConfig struct {
	Key     resource.Key
	Version string
	Spec    *meshv1alpha1.MeshConfig
}

// Telemetry is a Telemetry: the rules for logs and traces.
type Telemetry = Object[*telemetryv1alpha1.Telemetry]

// Names of built-in providers.
const (
	ProviderEnvoy       = "envoy" // logs to the standard output
	providerPrometheus  = "prometheus"
	providerStackdriver = "stackdriver"
)

// Provider returns the provider with a name, or nil. Case does not matter.
func (c *MeshConfig) Provider(name string) *meshv1alpha1.MeshConfig_ExtensionProvider {
	for _, p := range c.Spec.GetExtensionProviders() {
		if strings.EqualFold(p.GetName(), name) {
			return p
		}
	}
	builtIn := &meshv1alpha1.MeshConfig_ExtensionProvider{Name: strings.ToLower(name)}
	switch builtIn.GetName() {
	case ProviderEnvoy:
		builtIn.Provider = &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyFileAccessLog{
			EnvoyFileAccessLog: &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider{Path: StandardOutput},
		}
	case providerPrometheus:
		builtIn.Provider = &meshv1alpha1.MeshConfig_ExtensionProvider_Prometheus{}
	case providerStackdriver:
		builtIn.Provider = &meshv1alpha1.MeshConfig_ExtensionProvider_Stackdriver{}
	default:
		return nil
	}
	return builtIn
}

// ProviderService returns the service and its port that a provider sends to, or false if it sends to none.
func ProviderService(provider *meshv1alpha1.MeshConfig_ExtensionProvider) (service string, port uint32, ok bool) {
	switch provider := provider.GetProvider().(type) {
	case *meshv1alpha1.MeshConfig_ExtensionProvider_Zipkin:
		return provider.Zipkin.GetService(), provider.Zipkin.GetPort(), true
	case *meshv1alpha1.MeshConfig_ExtensionProvider_Opentelemetry:
		return provider.Opentelemetry.GetService(), provider.Opentelemetry.GetPort(), true
	}
	return "", 0, false
}
