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

// Telemetry is a Telemetry: what clients are to log, and which requests they are to trace.
type Telemetry = Object[*telemetryv1alpha1.Telemetry]

// Names of providers that there are without a MeshConfig that has them.
const (
	ProviderEnvoy       = "envoy" // logs to the standard output
	providerPrometheus  = "prometheus"
	providerStackdriver = "stackdriver"
)

// Provider returns what goes by a name, in whatever case, or nil.
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

// ProviderService returns the service and its port to which a provider that is translated sends, or false if it sends nowhere.
func ProviderService(p *meshv1alpha1.MeshConfig_ExtensionProvider) (service string, port uint32, ok bool) {
	switch p := p.GetProvider().(type) {
	case *meshv1alpha1.MeshConfig_ExtensionProvider_Zipkin:
		return p.Zipkin.GetService(), p.Zipkin.GetPort(), true
	case *meshv1alpha1.MeshConfig_ExtensionProvider_Opentelemetry:
		return p.Opentelemetry.GetService(), p.Opentelemetry.GetPort(), true
	}
	return "", 0, false
}
