package telemetry

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tracev3 "github.com/envoyproxy/go-control-plane/envoy/config/trace/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	detectorsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/tracers/opentelemetry/resource_detectors/v3"
	tracingv3 "github.com/envoyproxy/go-control-plane/envoy/type/tracing/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	telemetryv1alpha1 "istio.io/api/telemetry/v1alpha1"

	"tributary/server/envoy/model"
)

// defaultSampling is the percentage of traced requests without a setting.
const defaultSampling = 1

// clusterFinder returns the host and the cluster of a provider, or why there is no cluster.
type clusterFinder func(*extensionProvider) (host, cluster, wrong string)

// tracingSettings are the tracing settings of the Telemetries of a workload. Later Telemetries override earlier ones.
type tracingSettings struct {
	configured bool // by a Telemetry or a default provider
	disabled   bool
	byID       bool // sample by request ID
	sampling   float64
	tags       map[string]*telemetryv1alpha1.Tracing_CustomTag
	tagsPlace  model.Place

	provider      string
	providerPlace model.Place
}

func newTracingSettings(telemetries []*model.Telemetry, config *model.MeshConfig,
	role telemetryv1alpha1.WorkloadMode,
) *tracingSettings {
	settings := &tracingSettings{byID: true, sampling: legacySampling(config.Spec.GetDefaultConfig().GetTracing())}
	if names := config.Spec.GetDefaultProviders().GetTracing(); len(names) > 0 {
		settings.provider, settings.configured = names[0], true
		settings.providerPlace = model.PlaceIn(config.Key, "spec.defaultProviders.tracing")
	}
	for _, telemetry := range telemetries {
		for i, entry := range telemetry.Spec.GetTracing() {
			settings.configured = true
			if modeIncludes(entry.GetMatch().GetMode(), role) {
				place := model.PlaceIn(telemetry.Key, "spec.tracing[%d]", i)
				settings.override(entry, place)
			}
		}
	}
	return settings
}

func (s *tracingSettings) override(entry *telemetryv1alpha1.Tracing, place model.Place) {
	if len(entry.GetProviders()) > 0 {
		s.provider, s.providerPlace = entry.GetProviders()[0].GetName(), place.Subfield("providers")
	}
	if disabled := entry.GetDisableSpanReporting(); disabled != nil {
		s.disabled = disabled.GetValue()
	}
	if percentage := entry.GetRandomSamplingPercentage(); percentage != nil {
		s.sampling = percentage.GetValue()
	}
	if byID := entry.GetUseRequestIdForTraceSampling(); byID != nil {
		s.byID = byID.GetValue()
	}
	if tags := entry.GetCustomTags(); tags != nil {
		s.tags, s.tagsPlace = tags, place
	}
}

// AddTracing adds the tracing of workloads in a role: clients or servers. Without Telemetries and default providers,
// the MeshConfig may enable tracing by the tracer of Envoy's bootstrap.
func AddTracing(observation *model.Observation, telemetries []*model.Telemetry, config *model.MeshConfig,
	role telemetryv1alpha1.WorkloadMode, find clusterFinder,
) {
	legacy := config.Spec.GetDefaultConfig().GetTracing()
	settings := newTracingSettings(telemetries, config, role)
	switch {
	case !settings.configured && config.Spec.GetEnableTracing():
		observation.Tracing = &hcmv3.HttpConnectionManager_Tracing{}
	case !settings.configured, settings.disabled, settings.provider == "":
		return
	default:
		tracing, wrong := providerTracing(settings.provider, config, find)
		if wrong != "" {
			observation.Findings.Note(settings.providerPlace, "%s: Envoys do not trace", wrong)
			return
		}
		observation.Random, observation.Tracing = !settings.byID, tracing
	}
	setSampling(observation, settings.sampling, legacy)
	addTags(observation, customTags(settings.tags), settings.tagsPlace.Subfield("customTags"))
	if len(settings.tags) == 0 {
		place := model.PlaceIn(config.Key, "spec.defaultConfig.tracing.customTags")
		tags := make(map[string]*telemetryv1alpha1.Tracing_CustomTag)
		for name, tag := range legacy.GetCustomTags() {
			tags[name] = new(telemetryv1alpha1.Tracing_CustomTag)
			_ = proto.Unmarshal(model.MustMarshal(tag), tags[name]) // both messages have the same encoding
		}
		addTags(observation, customTags(tags), place)
	}
}

// providerTracing returns the tracing by a provider, or why there is none.
func providerTracing(name string, config *model.MeshConfig, find clusterFinder,
) (tracing *hcmv3.HttpConnectionManager_Tracing, wrong string) {
	provider := config.Provider(name)
	if provider == nil {
		return nil, "no MeshConfig has a provider " + name
	}
	if _, _, sends := model.ProviderService(provider); !sends {
		return nil, fmt.Sprintf("the provider %s is none that Envoys trace by", name)
	}
	host, cluster, wrong := find(provider)
	if wrong != "" {
		return nil, fmt.Sprintf("provider %s: %s", name, wrong)
	}
	tracing = newTracing(provider, host, cluster)
	if wrong = model.Invalid(tracing); wrong != "" {
		return nil, fmt.Sprintf("provider %s: %s", name, wrong)
	}
	return tracing, ""
}

// setSampling sets the percentage of traced requests.
func setSampling(observation *model.Observation, percentage float64, legacy *meshv1alpha1.Tracing) {
	tracing := observation.Tracing
	tracing.ClientSampling, tracing.OverallSampling = &typev3.Percent{Value: 100}, &typev3.Percent{Value: 100}
	if math.IsNaN(percentage) { // Envoy would reject the listener
		percentage = 0
	}
	tracing.RandomSampling = &typev3.Percent{Value: percentage}
	if tracing.GetMaxPathTagLength() == nil && legacy.GetMaxPathTagLength() != 0 {
		tracing.MaxPathTagLength = wrapperspb.UInt32(legacy.GetMaxPathTagLength())
	}
}

// legacySampling returns the percentage of traced requests of a MeshConfig.
func legacySampling(legacy *meshv1alpha1.Tracing) float64 {
	if sampling := legacy.GetSampling(); sampling > 0 && sampling <= 100 {
		return sampling
	}
	return defaultSampling
}

// newTracing returns the tracing by a provider of Zipkin or OpenTelemetry.
func newTracing(provider *extensionProvider, host, cluster string) *hcmv3.HttpConnectionManager_Tracing {
	name, length, config := "envoy.tracers.zipkin", uint32(0), proto.Message(nil)
	if zipkin := provider.GetZipkin(); zipkin != nil {
		length = zipkin.GetMaxTagLength()
		config = &tracev3.ZipkinConfig{
			CollectorCluster: cluster, CollectorHostname: host,
			CollectorEndpoint:        cmp.Or(zipkin.GetPath(), "/api/v2/spans"),
			CollectorEndpointVersion: tracev3.ZipkinConfig_HTTP_JSON, TraceId_128Bit: !zipkin.GetEnable_64BitTraceId(),
			SharedSpanContext: wrapperspb.Bool(false),
		}
	} else {
		name, length = "envoy.tracers.opentelemetry", provider.GetOpentelemetry().GetMaxTagLength()
		config = openTelemetry(provider.GetOpentelemetry(), host, cluster)
	}
	tracing := &hcmv3.HttpConnectionManager_Tracing{Provider: &tracev3.Tracing_Http{
		Name: name, ConfigType: &tracev3.Tracing_Http_TypedConfig{TypedConfig: model.ToAny(config)},
	}}
	if length != 0 {
		tracing.MaxPathTagLength = wrapperspb.UInt32(length)
	}
	return tracing
}

func openTelemetry(provider *meshv1alpha1.MeshConfig_ExtensionProvider_OpenTelemetryTracingProvider, host,
	cluster string,
) *tracev3.OpenTelemetryConfig {
	config := &tracev3.OpenTelemetryConfig{}
	if service := provider.GetHttp(); service != nil {
		uri, _ := url.JoinPath(host, service.GetPath()) // hosts are valid
		config.HttpService = &corev3.HttpService{HttpUri: &corev3.HttpUri{
			Uri: uri, HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: cluster},
			Timeout: cmp.Or(model.Shortened(service.GetTimeout()), durationpb.New(3*time.Second)), // Istio's default
		}}
		for _, header := range service.GetHeaders() {
			config.HttpService.RequestHeadersToAdd = append(config.HttpService.RequestHeadersToAdd, &corev3.HeaderValueOption{
				Header: headerValue(header), AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
			})
		}
	} else {
		config.GrpcService = &corev3.GrpcService{
			Timeout: model.Shortened(provider.GetGrpc().GetTimeout()),
			TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
				EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: cluster, Authority: host},
			},
		}
		for _, header := range provider.GetGrpc().GetInitialMetadata() {
			config.GrpcService.InitialMetadata = append(config.GrpcService.InitialMetadata, headerValue(header))
		}
	}
	if provider.GetResourceDetectors().GetEnvironment() != nil {
		config.ResourceDetectors = append(config.ResourceDetectors, &corev3.TypedExtensionConfig{
			Name:        "envoy.tracers.opentelemetry.resource_detectors.environment",
			TypedConfig: model.ToAny(&detectorsv3.EnvironmentResourceDetectorConfig{}),
		})
	}
	return config
}

func headerValue(header *meshv1alpha1.MeshConfig_ExtensionProvider_HttpHeader) *corev3.HeaderValue {
	return &corev3.HeaderValue{Key: header.GetName(), Value: header.GetValue()}
}

// customTags returns tags, ordered by name.
func customTags(settings map[string]*telemetryv1alpha1.Tracing_CustomTag) (tags []*tracingv3.CustomTag) {
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		customTag := &tracingv3.CustomTag{Tag: name}
		switch setting := settings[name].GetType().(type) {
		case *telemetryv1alpha1.Tracing_CustomTag_Literal:
			customTag.Type = &tracingv3.CustomTag_Literal_{
				Literal: &tracingv3.CustomTag_Literal{Value: setting.Literal.GetValue()},
			}
		case *telemetryv1alpha1.Tracing_CustomTag_Environment:
			customTag.Type = &tracingv3.CustomTag_Environment_{Environment: &tracingv3.CustomTag_Environment{
				Name: setting.Environment.GetName(), DefaultValue: setting.Environment.GetDefaultValue(),
			}}
		case *telemetryv1alpha1.Tracing_CustomTag_Header:
			customTag.Type = &tracingv3.CustomTag_RequestHeader{RequestHeader: &tracingv3.CustomTag_Header{
				Name: setting.Header.GetName(), DefaultValue: setting.Header.GetDefaultValue(),
			}}
		default:
			continue
		}
		tags = append(tags, customTag)
	}
	return tags
}

// addTags adds the tags of a field that Envoy accepts.
func addTags(observation *model.Observation, tags []*tracingv3.CustomTag, place model.Place) {
	for _, customTag := range tags {
		if wrong := model.Refused(customTag); wrong != "" {
			tagPlace := model.Place{Object: place.Object, Field: place.Field + "[" + customTag.GetTag() + "]"}
			observation.Findings.Note(tagPlace, "%s", wrong)
			continue
		}
		observation.Tracing.CustomTags = append(observation.Tracing.CustomTags, customTag)
	}
}
