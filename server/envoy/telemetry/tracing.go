package telemetry

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tracev3 "github.com/envoyproxy/go-control-plane/envoy/config/trace/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	detectorsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/tracers/opentelemetry/resource_detectors/v3"
	tracingv3 "github.com/envoyproxy/go-control-plane/envoy/type/tracing/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	telemetryv1alpha1 "istio.io/api/telemetry/v1alpha1"

	"tributary/server/envoy/model"
)

// defaultSampling is how many requests in a hundred are traced if nobody says so.
const defaultSampling = 1

// finder returns the host to which a provider sends, and its cluster, or why there is none.
type finder func(*meshv1alpha1.MeshConfig_ExtensionProvider) (host, cluster, why string)

// AddTracing adds which requests are traced by workloads as clients, or as servers: what the Telemetries say one after the other, by the
// last provider that is named; else, if the MeshConfig enables it, what that says, by whatever the Envoy has in its bootstrap.
func AddTracing(o *model.Observation, all []*model.Telemetry, config *model.MeshConfig, as telemetryv1alpha1.WorkloadMode, find finder) {
	legacy := config.Spec.GetDefaultConfig().GetTracing()
	sampling := legacySampling(legacy)
	var name string
	var by model.Place
	if names := config.Spec.GetDefaultProviders().GetTracing(); len(names) > 0 {
		name, by = names[0], model.Place{Of: config.Key, Field: "spec.defaultProviders.tracing"}
	}
	said, off := name != "", false
	byID := true
	var tags map[string]*telemetryv1alpha1.Tracing_CustomTag
	var tagged model.Place
	for _, t := range all {
		for i, s := range t.Spec.GetTracing() {
			said = true
			if !appliesTo(s.GetMatch().GetMode(), as) {
				continue
			}
			at := model.Place{Of: t.Key, Field: fmt.Sprintf("spec.tracing[%d]", i)}
			if len(s.GetProviders()) > 0 {
				name, by = s.GetProviders()[0].GetName(), at.In("providers")
			}
			if s.GetDisableSpanReporting() != nil {
				off = s.GetDisableSpanReporting().GetValue()
			}
			if s.GetRandomSamplingPercentage() != nil {
				sampling = s.GetRandomSamplingPercentage().GetValue()
			}
			if s.GetUseRequestIdForTraceSampling() != nil {
				byID = s.GetUseRequestIdForTraceSampling().GetValue()
			}
			if s.GetCustomTags() != nil {
				tags, tagged = s.GetCustomTags(), at
			}
		}
	}
	if !said {
		if config.Spec.GetEnableTracing() {
			o.Tracing = &hcmv3.HttpConnectionManager_Tracing{}
			sample(o, sampling, legacy)
			addTags(o, legacyTags(legacy), customTagsOf(config))
		}
		return
	}
	if off || name == "" {
		return
	}
	p := config.Provider(name)
	if p == nil {
		o.Findings.Note(by, "no MeshConfig has a provider %s: nothing is traced", name)
		return
	}
	if _, _, sends := model.ProviderService(p); !sends {
		o.Findings.Note(by, "the provider %s is none that Envoys are told to trace by: nothing is traced", name)
		return
	}
	host, cluster, why := find(p)
	if why != "" {
		o.Findings.Note(by, "%s, which is what provider %s sends to: nothing is traced", why, name)
		return
	}
	o.Random = !byID
	if o.Tracing = tracer(p, host, cluster); model.Invalid(o.Tracing) != "" {
		o.Findings.Note(by, "provider %s: %s: nothing is traced", name, model.Invalid(o.Tracing))
		o.Tracing = nil
		return
	}
	sample(o, sampling, legacy)
	if addTags(o, customTags(tags), tagged.In("customTags")); len(tags) == 0 {
		addTags(o, legacyTags(legacy), customTagsOf(config))
	}
}

// sample says how many requests are traced.
func sample(o *model.Observation, percent float64, legacy *meshv1alpha1.Tracing) {
	o.Tracing.ClientSampling, o.Tracing.OverallSampling = &typev3.Percent{Value: 100}, &typev3.Percent{Value: 100}
	if math.IsNaN(percent) { // Envoy would reject the listener
		percent = 0
	}
	o.Tracing.RandomSampling = &typev3.Percent{Value: percent}
	if o.Tracing.GetMaxPathTagLength() == nil && legacy.GetMaxPathTagLength() != 0 {
		o.Tracing.MaxPathTagLength = wrapperspb.UInt32(legacy.GetMaxPathTagLength())
	}
}

// legacySampling is what the MeshConfig says of how many requests are traced.
func legacySampling(t *meshv1alpha1.Tracing) float64 {
	switch s := t.GetSampling(); {
	case s == 0, s > 100, s < 0:
		return defaultSampling
	default:
		return s
	}
}

// tracer is what spans are sent by.
func tracer(p *meshv1alpha1.MeshConfig_ExtensionProvider, host, cluster string) *hcmv3.HttpConnectionManager_Tracing {
	t := &hcmv3.HttpConnectionManager_Tracing{}
	limit := func(length uint32) {
		if length != 0 {
			t.MaxPathTagLength = wrapperspb.UInt32(length)
		}
	}
	by := func(name string, config proto.Message) {
		t.Provider = &tracev3.Tracing_Http{Name: name, ConfigType: &tracev3.Tracing_Http_TypedConfig{TypedConfig: model.ToAny(config)}}
	}
	if z := p.GetZipkin(); z != nil {
		limit(z.GetMaxTagLength())
		by("envoy.tracers.zipkin", &tracev3.ZipkinConfig{
			CollectorCluster: cluster, CollectorHostname: host, CollectorEndpoint: cmp.Or(z.GetPath(), "/api/v2/spans"),
			CollectorEndpointVersion: tracev3.ZipkinConfig_HTTP_JSON, TraceId_128Bit: !z.GetEnable_64BitTraceId(),
			SharedSpanContext: wrapperspb.Bool(false),
		})
		return t
	}
	otel := p.GetOpentelemetry()
	limit(otel.GetMaxTagLength())
	config := &tracev3.OpenTelemetryConfig{}
	if h := otel.GetHttp(); h != nil {
		uri, _ := url.JoinPath(host, h.GetPath()) // a host is none that cannot be joined
		config.HttpService = &corev3.HttpService{HttpUri: &corev3.HttpUri{
			Uri: uri, HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: cluster}, Timeout: h.GetTimeout(),
		}}
		for _, header := range h.GetHeaders() {
			config.HttpService.RequestHeadersToAdd = append(config.HttpService.RequestHeadersToAdd, &corev3.HeaderValueOption{
				Header: headerOf(header), AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
			})
		}
	} else {
		to := &corev3.GrpcService{Timeout: otel.GetGrpc().GetTimeout(), TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
			EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: cluster, Authority: host},
		}}
		for _, header := range otel.GetGrpc().GetInitialMetadata() {
			to.InitialMetadata = append(to.InitialMetadata, headerOf(header))
		}
		config.GrpcService = to
	}
	if otel.GetResourceDetectors().GetEnvironment() != nil {
		config.ResourceDetectors = append(config.ResourceDetectors, &corev3.TypedExtensionConfig{
			Name:        "envoy.tracers.opentelemetry.resource_detectors.environment",
			TypedConfig: model.ToAny(&detectorsv3.EnvironmentResourceDetectorConfig{}),
		})
	}
	by("envoy.tracers.opentelemetry", config)
	return t
}

func headerOf(h *meshv1alpha1.MeshConfig_ExtensionProvider_HttpHeader) *corev3.HeaderValue {
	return &corev3.HeaderValue{Key: h.GetName(), Value: h.GetValue()}
}

// customTags are those of a Telemetry, in order of name.
func customTags(tags map[string]*telemetryv1alpha1.Tracing_CustomTag) (all []*tracingv3.CustomTag) {
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		tag := tags[name]
		switch {
		case tag.GetLiteral() != nil:
			all = append(all, literalTag(name, tag.GetLiteral().GetValue()))
		case tag.GetEnvironment() != nil:
			all = append(all, environmentTag(name, tag.GetEnvironment()))
		case tag.GetHeader() != nil:
			all = append(all, headerTag(name, tag.GetHeader()))
		}
	}
	return all
}

// legacyTags are those of a MeshConfig, in order of name.
func legacyTags(t *meshv1alpha1.Tracing) (all []*tracingv3.CustomTag) {
	for _, name := range slices.Sorted(maps.Keys(t.GetCustomTags())) {
		tag := t.GetCustomTags()[name]
		switch {
		case tag.GetLiteral() != nil:
			all = append(all, literalTag(name, tag.GetLiteral().GetValue()))
		case tag.GetEnvironment() != nil:
			all = append(all, environmentTag(name, tag.GetEnvironment()))
		case tag.GetHeader() != nil:
			all = append(all, headerTag(name, tag.GetHeader()))
		}
	}
	return all
}

// addTags adds tags that are said at a place, but for what Envoy would refuse.
func addTags(o *model.Observation, tags []*tracingv3.CustomTag, at model.Place) {
	for _, tag := range tags {
		if why := model.Refused(tag); why != "" {
			o.Findings.Note(model.Place{Of: at.Of, Field: at.Field + "[" + tag.GetTag() + "]"}, "%s", why)
			continue
		}
		o.Tracing.CustomTags = append(o.Tracing.CustomTags, tag)
	}
}

// customTagsOf is where a MeshConfig says which there are.
func customTagsOf(c *model.MeshConfig) model.Place {
	return model.Place{Of: c.Key, Field: "spec.defaultConfig.tracing.customTags"}
}

// source is where a tag comes from: a variable or a header.
type source interface {
	GetName() string
	GetDefaultValue() string
}

func literalTag(name, value string) *tracingv3.CustomTag {
	return &tracingv3.CustomTag{Tag: name, Type: &tracingv3.CustomTag_Literal_{Literal: &tracingv3.CustomTag_Literal{Value: value}}}
}

func environmentTag(name string, from source) *tracingv3.CustomTag {
	return &tracingv3.CustomTag{Tag: name, Type: &tracingv3.CustomTag_Environment_{
		Environment: &tracingv3.CustomTag_Environment{Name: from.GetName(), DefaultValue: from.GetDefaultValue()},
	}}
}

func headerTag(name string, from source) *tracingv3.CustomTag {
	return &tracingv3.CustomTag{Tag: name, Type: &tracingv3.CustomTag_RequestHeader{
		RequestHeader: &tracingv3.CustomTag_Header{Name: from.GetName(), DefaultValue: from.GetDefaultValue()},
	}}
}
