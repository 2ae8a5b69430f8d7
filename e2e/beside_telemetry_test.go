package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	telemetryv1alpha1 "istio.io/api/telemetry/v1alpha1"
	typev1beta1 "istio.io/api/type/v1beta1"
)

// meshConfig makes the settings for the whole mesh, with providers that send spans to the service that marks it.
func (r *randomMesh) meshConfig(mark string) *meshv1alpha1.MeshConfig {
	c := &meshv1alpha1.MeshConfig{
		AccessLogFile: r.pick("", "/dev/stdout"), AccessLogEncoding: meshv1alpha1.MeshConfig_AccessLogEncoding(r.IntN(2)),
		EnableTracing: r.seldom(2), DisableEnvoyListenerLog: r.seldom(4),
		DefaultConfig: &meshv1alpha1.ProxyConfig{Tracing: &meshv1alpha1.Tracing{
			Sampling:         float64(r.IntN(3)) * 25,
			MaxPathTagLength: r.Uint32N(2) * 99,
		}},
	}
	if r.seldom(2) {
		c.DefaultConfig.Tracing.CustomTags = map[string]*meshv1alpha1.Tracing_CustomTag{
			"mesh": {Type: &meshv1alpha1.Tracing_CustomTag_Header{Header: &meshv1alpha1.Tracing_RequestHeader{Name: "x-a", DefaultValue: "none"}}},
		}
	}
	if c.GetAccessLogEncoding() == meshv1alpha1.MeshConfig_JSON {
		c.AccessLogFormat = r.pick("", `{"path": "%REQ_WITHOUT_QUERY(:PATH)%"}`)
	} else {
		c.AccessLogFormat = r.pick("", "%PROTOCOL%", "%REQ_WITHOUT_QUERY(:PATH)%\n")
	}
	if r.seldom(3) {
		c.OutboundTrafficPolicy = &meshv1alpha1.MeshConfig_OutboundTrafficPolicy{
			Mode: meshv1alpha1.MeshConfig_OutboundTrafficPolicy_Mode(r.IntN(2)),
		}
	}
	if r.seldom(3) {
		c.DefaultProviders = &meshv1alpha1.MeshConfig_DefaultProviders{
			AccessLogging: []string{r.pick(observers...)},
			Tracing:       []string{r.pick(observers...)},
		}
	}
	text := &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider{
		Path:            r.pick("", "/var/log/text"),
		OmitEmptyValues: r.seldom(2),
	}
	if r.seldom(2) {
		text.LogFormat = &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider_LogFormat{
			LogFormat: &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider_LogFormat_Text{Text: r.pick("", "%RESPONSE_CODE%")},
		}
	}
	labels := &structpb.Struct{}
	if r.often(3) {
		labels.Fields = map[string]*structpb.Value{"code": structpb.NewStringValue("%RESPONSE_CODE%")}
	}
	service, port := "shop/"+mark, uint32(7777)
	if r.seldom(2) {
		service = mark
	}
	otel := &meshv1alpha1.MeshConfig_ExtensionProvider_OpenTelemetryTracingProvider{
		Service: service, Port: port,
		MaxTagLength: r.Uint32N(2) * 33,
	}
	if r.seldom(2) {
		otel.Http = &meshv1alpha1.MeshConfig_ExtensionProvider_HttpService{
			Path: "/v1/traces", Timeout: r.duration(3),
			Headers: []*meshv1alpha1.MeshConfig_ExtensionProvider_HttpHeader{
				{Name: "x-token", HeaderValue: &meshv1alpha1.MeshConfig_ExtensionProvider_HttpHeader_Value{Value: "token"}},
			},
		}
		otel.ResourceDetectors = &meshv1alpha1.MeshConfig_ExtensionProvider_ResourceDetectors{
			Environment: &meshv1alpha1.MeshConfig_ExtensionProvider_ResourceDetectors_EnvironmentResourceDetector{},
		}
	}
	c.ExtensionProviders = []*meshv1alpha1.MeshConfig_ExtensionProvider{
		{Name: "text", Provider: &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyFileAccessLog{EnvoyFileAccessLog: text}},
		{Name: "labels", Provider: &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyFileAccessLog{
			EnvoyFileAccessLog: &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider{
				LogFormat: &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider_LogFormat{
					LogFormat: &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider_LogFormat_Labels{Labels: labels},
				},
			},
		}},
		{Name: "zipkin", Provider: &meshv1alpha1.MeshConfig_ExtensionProvider_Zipkin{
			Zipkin: &meshv1alpha1.MeshConfig_ExtensionProvider_ZipkinTracingProvider{
				Service: service, Port: port, Path: r.pick("", "/spans"), Enable_64BitTraceId: r.seldom(2), MaxTagLength: r.Uint32N(2) * 44,
			},
		}},
		{Name: "otel", Provider: &meshv1alpha1.MeshConfig_ExtensionProvider_Opentelemetry{Opentelemetry: otel}},
	}
	return c
}

// observers are names of providers, and one unknown name.
var observers = []string{"envoy", "text", "Labels", "zipkin", "otel", "nobody", "prometheus"}

// telemetry makes a Telemetry, in most cases for the workload of the compared Envoys.
func (r *randomMesh) telemetry() *telemetryv1alpha1.Telemetry {
	t := &telemetryv1alpha1.Telemetry{}
	if r.seldom(2) {
		t.Selector = &typev1beta1.WorkloadSelector{MatchLabels: map[string]string{"app": r.pick("vm1", "vm1", "two")}}
	}
	mode := func() telemetryv1alpha1.WorkloadMode { return telemetryv1alpha1.WorkloadMode(r.IntN(3)) } //nolint:gosec // there are three
	refs := func() (providers []*telemetryv1alpha1.ProviderRef) {
		for range r.IntN(3) {
			providers = append(providers, &telemetryv1alpha1.ProviderRef{Name: r.pick(observers...)})
		}
		return providers
	}
	for range r.IntN(3) {
		l := &telemetryv1alpha1.AccessLogging{Providers: refs()}
		if r.seldom(3) {
			l.Match = &telemetryv1alpha1.AccessLogging_LogSelector{Mode: mode()}
		}
		if r.seldom(3) {
			l.Disabled = wrapperspb.Bool(r.often(3))
		}
		if r.seldom(3) {
			l.Filter = &telemetryv1alpha1.AccessLogging_Filter{Expression: r.pick("response.code >= 400", "request.path.startsWith('/a')")}
		}
		t.AccessLogging = append(t.AccessLogging, l)
	}
	if r.seldom(2) {
		s := &telemetryv1alpha1.Tracing{Providers: refs()}
		if r.seldom(3) {
			s.Match = &telemetryv1alpha1.Tracing_TracingSelector{Mode: mode()}
		}
		if r.seldom(2) {
			s.RandomSamplingPercentage = wrapperspb.Double(float64(r.IntN(3)) * 12.5)
		}
		if r.seldom(4) {
			s.DisableSpanReporting = wrapperspb.Bool(r.seldom(2))
		}
		if r.seldom(3) {
			s.UseRequestIdForTraceSampling = wrapperspb.Bool(r.seldom(2))
		}
		if r.often(2) {
			s.EnableIstioTags = wrapperspb.Bool(false)
		}
		if r.seldom(3) {
			s.CustomTags = map[string]*telemetryv1alpha1.Tracing_CustomTag{
				"literal": {Type: &telemetryv1alpha1.Tracing_CustomTag_Literal{Literal: &telemetryv1alpha1.Tracing_Literal{Value: "x"}}},
				"header": {Type: &telemetryv1alpha1.Tracing_CustomTag_Header{Header: &telemetryv1alpha1.Tracing_RequestHeader{
					Name:         "x-b",
					DefaultValue: r.pick("", "y"),
				}}},
				"env": {Type: &telemetryv1alpha1.Tracing_CustomTag_Environment{Environment: &telemetryv1alpha1.Tracing_Environment{Name: "HOME"}}},
			}
		}
		t.Tracing = append(t.Tracing, s)
	}
	return t
}

// setConfig makes the MeshConfig of the mesh, for tributary and for istiod.
func (r *randomMesh) setConfig(t *testing.T, mark string) *meshv1alpha1.MeshConfig {
	t.Helper()
	c := r.meshConfig(mark)
	body, err := protojson.Marshal(c)
	require.NoError(t, err)
	r.config = string(body)
	return c
}
