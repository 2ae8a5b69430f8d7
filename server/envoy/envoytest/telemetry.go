package envoytest

import (
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	telemetryv1alpha1 "istio.io/api/telemetry/v1alpha1"
	typev1beta1 "istio.io/api/type/v1beta1"
)

// config makes a MeshConfig with providers of several kinds, some of which send to services that there may not be.
func (m *Mesh) config() *meshv1alpha1.MeshConfig {
	meshConfig := &meshv1alpha1.MeshConfig{
		OutboundTrafficPolicy: &meshv1alpha1.MeshConfig_OutboundTrafficPolicy{
			Mode: meshv1alpha1.MeshConfig_OutboundTrafficPolicy_Mode(m.rand.IntN(2)), //nolint:gosec // there are two
		},
		EnableTracing: m.one(2), DisableEnvoyListenerLog: m.one(4),
		AccessLogFile: m.pick("", "/dev/null"),
		AccessLogFormat: m.pick("", "%REQ(:PATH)% %REQ_WITHOUT_QUERY(:PATH)%", "%NOTHING%",
			`{"a": "%PROTOCOL%"}`),
		AccessLogEncoding: meshv1alpha1.MeshConfig_AccessLogEncoding(m.rand.IntN(2)), //nolint:gosec // there are two
	}
	if m.one(3) {
		meshConfig.EnableAutoMtls = wrapperspb.Bool(m.one(2))
	}
	if m.one(3) {
		meshConfig.TrustDomain, meshConfig.TrustDomainAliases = "example.org", []string{m.pick("old.example", "example.org")}
	}
	if m.one(2) {
		meshConfig.DefaultConfig = &meshv1alpha1.ProxyConfig{Tracing: &meshv1alpha1.Tracing{}}
		m.fill(meshConfig.GetDefaultConfig().GetTracing())
	}
	if m.one(3) {
		meshConfig.DefaultProviders = &meshv1alpha1.MeshConfig_DefaultProviders{
			AccessLogging: []string{m.pick(providers...)},
			Tracing:       []string{m.pick(providers...)},
		}
	}
	file := &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider{
		Path:            "/dev/null",
		OmitEmptyValues: m.one(2),
	}
	switch m.rand.IntN(3) {
	case 0:
		file.LogFormat = &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider_LogFormat{
			LogFormat: &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider_LogFormat_Text{Text: m.pick("",
				"%RESPONSE_CODE%",
				"%GONE(%", "%CEL(request.path)%")},
		}
	case 1:
		labels, _ := structpb.NewStruct(map[string]any{
			"a": m.pick("%DURATION%", "100%"),
			"b": []any{"c", 1, true, map[string]any{"d": "%START_TIME%"}},
		})
		file.LogFormat = &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider_LogFormat{
			LogFormat: &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider_LogFormat_Labels{Labels: labels},
		}
	}
	zipkin := &meshv1alpha1.MeshConfig_ExtensionProvider_ZipkinTracingProvider{
		Service: m.pick("one.internal", "shop/two.internal"), Port: 80,
		MaxTagLength: m.rand.Uint32N(2),
	}
	otel := &meshv1alpha1.MeshConfig_ExtensionProvider_OpenTelemetryTracingProvider{
		Service: m.pick("three.internal", "default/two.internal"),
		Port:    8080,
	}
	if m.one(2) {
		otel.Http = &meshv1alpha1.MeshConfig_ExtensionProvider_HttpService{Path: "/v1/traces"}
	}
	meshConfig.ExtensionProviders = []*meshv1alpha1.MeshConfig_ExtensionProvider{
		{Name: "asked", Provider: &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyExtAuthzGrpc{
			EnvoyExtAuthzGrpc: &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationGrpcProvider{
				Service: m.pick("one.internal", "default/three.internal", "nobody.internal"), Port: 80,
			},
		}},
		{Name: "file", Provider: &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyFileAccessLog{EnvoyFileAccessLog: file}},
		{Name: "zipkin", Provider: &meshv1alpha1.MeshConfig_ExtensionProvider_Zipkin{Zipkin: zipkin}},
		{Name: "otel", Provider: &meshv1alpha1.MeshConfig_ExtensionProvider_Opentelemetry{Opentelemetry: otel}},
	}
	return meshConfig
}

// providers are names of some, which there may not be.
var providers = []string{"envoy", "file", "zipkin", "otel", "prometheus", "nobody"}

func (m *Mesh) refs() (providerRefs []*telemetryv1alpha1.ProviderRef) {
	for range m.rand.IntN(3) {
		providerRefs = append(providerRefs, &telemetryv1alpha1.ProviderRef{Name: m.pick(providers...)})
	}
	return providerRefs
}

func (m *Mesh) telemetry() *telemetryv1alpha1.Telemetry {
	telemetry := &telemetryv1alpha1.Telemetry{}
	if m.one(2) {
		telemetry.Selector = &typev1beta1.WorkloadSelector{MatchLabels: map[string]string{"app": m.pick("one", "two")}}
	}
	for range m.rand.IntN(3) {
		logging := &telemetryv1alpha1.AccessLogging{}
		m.fill(logging)
		logging.Providers = m.refs()
		if logging.GetFilter() != nil {
			logging.Filter.Expression = m.pick("response.code >= 400", "request.path.startsWith('/a') && has(request.headers.x)",
				"nothing(1)",
				"[1].exists(x, x == response.code)", "'a'.reverse() == 'a'")
		}
		telemetry.AccessLogging = append(telemetry.AccessLogging, logging)
	}
	if m.one(2) {
		tracing := &telemetryv1alpha1.Tracing{}
		m.fill(tracing)
		tracing.Providers = m.refs()
		telemetry.Tracing = append(telemetry.Tracing, tracing)
	}
	return telemetry
}
