package coverage

import (
	"maps"

	"google.golang.org/protobuf/reflect/protoreflect"

	"tributary/server/envoy/model"
)

const (
	identityReason   = "certificates are those of the Envoy's identity"
	bootstrapReason  = "it belongs to the bootstrap of the Envoy"
	agentReason      = "it is for Istio's agent"
	istiodReason     = "it is for istiod"
	kubernetesReason = "it is for Kubernetes"
	istioDefault     = "it is as Istio has it by default"
)

// sameReason returns the same reason for several fields.
func sameReason(why string, fields ...string) map[string]string {
	m := make(map[string]string, len(fields))
	for _, f := range fields {
		m[f] = why
	}
	return m
}

// mergeMaps returns the entries of several maps.
func mergeMaps[K comparable, V any](parts ...map[K]V) map[K]V {
	result := make(map[K]V)
	for _, p := range parts {
		maps.Copy(result, p)
	}
	return result
}

// meshDeclarations has Telemetry, ProxyConfig and MeshConfig.
var meshDeclarations = map[protoreflect.FullName]declaration{
	"istio.telemetry.v1alpha1.Telemetry": {
		translated: "selector targetRef targetRefs tracing accessLogging",
		unsupported: map[string]string{
			"metrics": "statistics are Envoy's own, since those of Istio need a filter that only Istio's build of Envoy has",
		},
	},
	"istio.type.v1beta1.WorkloadSelector":                {translated: "matchLabels"},
	"istio.telemetry.v1alpha1.ProviderRef":               {translated: "name"},
	"istio.telemetry.v1alpha1.AccessLogging":             {translated: "match providers disabled filter"},
	"istio.telemetry.v1alpha1.AccessLogging.LogSelector": {translated: "mode"},
	"istio.telemetry.v1alpha1.AccessLogging.Filter":      {translated: "expression"},
	"istio.telemetry.v1alpha1.Tracing": {
		translated: "match providers randomSamplingPercentage disableSpanReporting customTags useRequestIdForTraceSampling",
		unsupported: map[string]string{
			"enableIstioTags":           "spans have none of Istio's tags",
			"disableContextPropagation": "contexts are passed on",
		},
	},
	"istio.telemetry.v1alpha1.Tracing.TracingSelector": {translated: "mode"},
	"istio.telemetry.v1alpha1.Tracing.CustomTag": {
		translated: "literal environment header", unsupported: map[string]string{"formatter": "the tag is left out"},
	},
	"istio.telemetry.v1alpha1.Tracing.Literal":       {translated: "value"},
	"istio.telemetry.v1alpha1.Tracing.Environment":   {translated: "name defaultValue"},
	"istio.telemetry.v1alpha1.Tracing.RequestHeader": {translated: "name defaultValue"},

	"istio.networking.v1beta1.ProxyConfig": {
		meaningless: map[string]string{"image": kubernetesReason},
		unsupported: map[string]string{
			"selector":             bootstrapReason,
			"concurrency":          "an Envoy has as many threads as --concurrency says when it is started",
			"environmentVariables": "the environment of an Envoy is set when it is started",
		},
	},

	"istio.mesh.v1alpha1.MeshConfig": {
		translated: "outboundTrafficPolicy inboundTrafficPolicy enableTracing accessLogFile accessLogFormat " +
			"accessLogEncoding disableEnvoyListenerLog defaultConfig extensionProviders defaultProviders enableAutoMtls " +
			"trustDomain trustDomainAliases meshMTLS pathNormalization",
		meaningless: mergeMaps(
			sameReason(istiodReason, "configSources", "proxyHttpPort"),
			sameReason(kubernetesReason, "ingressClass", "ingressService", "ingressControllerMode", "ingressSelector",
				"discoverySelectors",
				"serviceSettings", "serviceScopeConfigs"),
			sameReason(agentReason, "enablePrometheusMerge"),
			sameReason(identityReason, "caCertificates", "certificates", "ca"),
			sameReason("there are no tunnels", "hboneIdleTimeout"),
		),
		unsupported: mergeMaps(
			sameReason(istioDefault, "connectTimeout", "protocolDetectionTimeout", "tcpKeepalive", "localityLbSetting",
				"zoneAwareLbSetting",
				"dnsRefreshRate", "h2UpgradePolicy",
				"outboundClusterStatName", "inboundClusterStatName",
				"defaultHttpRetryPolicy", "defaultInboundHttpRetryPolicy", "tlsDefaults", "defaultTrafficPolicy",
				"verifyCertificateAtClient"),
			sameReason("objects without exportTo are visible to all", "defaultServiceExportTo", "defaultVirtualServiceExportTo",
				"defaultDestinationRuleExportTo", "serviceEntryVisibility"),
			map[string]string{
				"enableEnvoyAccessLogService": "the cluster of that service belongs to the bootstrap: no logs are sent to it",
				"rootNamespace":               "it is " + model.RootNamespace, "proxyListenPort": "it is 15001",
				"proxyInboundListenPort": "it is 15006",
			},
		),
	},
	// of inbound and of gateways' requests
	"istio.mesh.v1alpha1.MeshConfig.ProxyPathNormalization": {translated: "normalization"},
	"istio.mesh.v1alpha1.MeshConfig.TLSConfig": {
		translated: "minProtocolVersion cipherSuites", unsupported: map[string]string{"ecdhCurves": istioDefault},
	},
	"istio.security.v1beta1.PeerAuthentication":           {translated: "selector mtls portLevelMtls"},
	"istio.security.v1beta1.PeerAuthentication.MutualTLS": {translated: "mode"},
	"istio.mesh.v1alpha1.MeshConfig.OutboundTrafficPolicy": {
		translated: "mode", unsupported: map[string]string{"tls": "connections are passed on as they are"},
	},
	"istio.mesh.v1alpha1.MeshConfig.InboundTrafficPolicy": {translated: "mode"},
	"istio.mesh.v1alpha1.MeshConfig.DefaultProviders": {
		translated: "tracing accessLogging", unsupported: map[string]string{"metrics": "statistics are Envoy's own"},
	},
	"istio.mesh.v1alpha1.MeshConfig.ExtensionProvider": {
		translated: "name zipkin opentelemetry envoyFileAccessLog envoyExtAuthzHttp envoyExtAuthzGrpc",
		unsupported: mergeMaps(
			sameReason("it gets no traces", "lightstep", "datadog", "stackdriver", "opencensus", "skywalking"),
			sameReason("it gets no logs", "envoyHttpAls", "envoyTcpAls", "envoyOtelAls"),
			map[string]string{"prometheus": "statistics are Envoy's own", "sds": "credentials are files"},
		),
	},
	"istio.mesh.v1alpha1.MeshConfig.ExtensionProvider.EnvoyFileAccessLogProvider": {
		translated: "path logFormat omitEmptyValues",
	},
	"istio.mesh.v1alpha1.MeshConfig.ExtensionProvider.EnvoyFileAccessLogProvider.LogFormat": {translated: "text labels"},
	"istio.mesh.v1alpha1.MeshConfig.ExtensionProvider.ZipkinTracingProvider": {
		translated: "service port maxTagLength enable64bitTraceId path",
		unsupported: map[string]string{
			"traceContextOption": "the headers are those of B3", "timeout": "it is Envoy's own", "headers": "none are added",
		},
	},
	"istio.mesh.v1alpha1.MeshConfig.ExtensionProvider.OpenTelemetryTracingProvider": {
		translated: "service port maxTagLength http grpc resourceDetectors",
		unsupported: map[string]string{
			"serviceAttributeEnrichment": "the service is named by OTEL_RESOURCE_ATTRIBUTES, with the detector environment",
			"dynatraceSampler":           "as many requests are traced as a Telemetry says",
		},
	},
	"istio.mesh.v1alpha1.MeshConfig.ExtensionProvider.HttpService": {translated: "path timeout headers"},
	"istio.mesh.v1alpha1.MeshConfig.ExtensionProvider.GrpcService": {translated: "timeout initialMetadata"},
	"istio.mesh.v1alpha1.MeshConfig.ExtensionProvider.HttpHeader": {
		translated: "name value",
		unsupported: map[string]string{
			"envName": "it would be in the environment of istiod: the header is left out",
		},
	},
	"istio.mesh.v1alpha1.MeshConfig.ExtensionProvider.ResourceDetectors": {
		translated: "environment", unsupported: map[string]string{"dynatrace": "it is not asked"},
	},
	"istio.mesh.v1alpha1.MeshConfig.ExtensionProvider.ResourceDetectors.EnvironmentResourceDetector": {},
	"istio.mesh.v1alpha1.ProxyConfig": {
		translated: "tracing",
		meaningless: mergeMaps(
			sameReason(agentReason, "configPath", "binaryPath", "drainDuration", "discoveryAddress", "discoveryRefreshDelay",
				"availabilityZone",
				"controlPlaneAuthPolicy", "customConfigFile",
				"proxyBootstrapTemplatePath", "statusPort", "terminationDrainDuration", "readinessProbe", "sds",
				"caCertificatesPem", "meshId",
				"proxyMetadata", "serviceCluster",
				"tracingServiceName", "interceptionMode", "statNameLength"),
			sameReason(kubernetesReason, "holdApplicationUntilProxyStarts", "image"),
		),
		unsupported: mergeMaps(
			sameReason(bootstrapReason, "zipkinAddress", "statsdUdpAddress", "envoyMetricsServiceAddress", "envoyMetricsService",
				"envoyAccessLogService",
				"proxyAdminPort", "runtimeValues", "extraStatTags",
				"proxyStatsMatcher", "statsCompression", "fileFlushInterval", "fileFlushMinSizeKb", "privateKeyProvider"),
			sameReason(istioDefault, "gatewayTopology", "proxyHeaders", "connectionSettings"),
			map[string]string{"concurrency": "an Envoy has as many threads as --concurrency says when it is started"},
		),
	},
	"istio.mesh.v1alpha1.Tracing": {
		translated: "customTags maxPathTagLength sampling",
		unsupported: mergeMaps(
			sameReason("it belongs to the bootstrap of the Envoy, or to extensionProviders", "zipkin", "lightstep", "datadog",
				"stackdriver",
				"openCensusAgent", "tlsSettings"),
			map[string]string{"enableIstioTags": "spans have none of Istio's tags"},
		),
	},
	"istio.mesh.v1alpha1.Tracing.CustomTag":     {translated: "literal environment header"},
	"istio.mesh.v1alpha1.Tracing.Literal":       {translated: "value"},
	"istio.mesh.v1alpha1.Tracing.Environment":   {translated: "name defaultValue"},
	"istio.mesh.v1alpha1.Tracing.RequestHeader": {translated: "name defaultValue"},
}
