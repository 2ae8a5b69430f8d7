package telemetry

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	uuidv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/request_id/uuid/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	telemetryv1alpha1 "istio.io/api/telemetry/v1alpha1"

	"tributary/server/envoy/model"
)

// ObserveRequests adds access logs and tracing to an HTTP connection manager.
func ObserveRequests(observation *model.Observation, manager *hcmv3.HttpConnectionManager) {
	manager.RequestIdExtension = &hcmv3.RequestIDExtension{TypedConfig: model.ToAny(&uuidv3.UuidRequestIdConfig{
		UseRequestIdForTraceSampling: wrapperspb.Bool(observation == nil || !observation.Random),
	})}
	if observation != nil {
		manager.AccessLog, manager.Tracing = observation.Logs, observation.Tracing
	}
}

// ConnectionLogs returns the access logs of TCP connections.
func ConnectionLogs(observation *model.Observation) []*accesslogv3.AccessLog {
	if observation == nil {
		return nil
	}
	return observation.Logs
}

// ObserveUnmatched adds the access logs of connections without a filter chain to a listener.
func ObserveUnmatched(observation *model.Observation, listener *listenerv3.Listener) {
	if observation != nil {
		listener.AccessLog = observation.Unmatched
	}
}

// modeIncludes reports whether settings for a mode apply to workloads in a role: as clients, or as servers.
func modeIncludes(mode, role telemetryv1alpha1.WorkloadMode) bool {
	return mode == role || mode == telemetryv1alpha1.WorkloadMode_CLIENT_AND_SERVER
}

// logSettings are the settings of one provider of access logs.
type logSettings struct {
	disabled bool
	filter   *telemetryv1alpha1.AccessLogging_Filter
	place    model.Place
}

// AddLogs adds the access logs of workloads in a role: clients or servers. The last Telemetry that names providers
// selects them. Each entry of a Telemetry has settings for the providers that it names, or that the entry before named.
func AddLogs(observation *model.Observation, telemetries []*model.Telemetry, config *model.MeshConfig,
	role telemetryv1alpha1.WorkloadMode,
) {
	providers := logProviders(telemetries, config, role)
	names := slices.SortedFunc(maps.Keys(providers), func(a, b string) int {
		return cmp.Or(strings.Compare(config.Provider(a).GetName(), config.Provider(b).GetName()), strings.Compare(a, b))
	})
	logs := 0
	for _, name := range names {
		settings, provider := providers[name], config.Provider(name)
		if provider == nil {
			observation.Findings.Note(settings.place, "no MeshConfig has a provider %s: this rule writes no log", name)
			continue
		}
		if provider.GetEnvoyFileAccessLog() == nil {
			observation.Findings.Note(settings.place, "Envoys cannot log to the provider %s: this rule writes no log", name)
			continue
		}
		logs++
		filter, wrong := CelFilter(settings.filter) // coverage reports wrong expressions
		if !settings.disabled && wrong == "" {
			addLog(observation, fileLog(config, provider, &observation.Findings), filter, config)
		}
	}
	if file := config.Spec.GetAccessLogFile(); logs == 0 && file != "" {
		addLog(observation, meshLog(config, file, &observation.Findings), nil, config)
	}
}

// logProviders returns the settings of the selected providers, by name.
func logProviders(telemetries []*model.Telemetry, config *model.MeshConfig, role telemetryv1alpha1.WorkloadMode,
) map[string]logSettings {
	defaults := config.Spec.GetDefaultProviders().GetAccessLogging()
	selected, configured := defaults, false
	filters := make(map[string]*telemetryv1alpha1.AccessLogging_Filter)
	for _, telemetry := range telemetries {
		var names []string
		for _, entry := range telemetry.Spec.GetAccessLogging() {
			configured = true
			if !modeIncludes(entry.GetMatch().GetMode(), role) {
				continue
			}
			for _, name := range providerNames(entry) {
				names = append(names, name)
				filters[name] = entry.GetFilter()
			}
		}
		if len(names) > 0 {
			selected = names
		}
	}
	providers := make(map[string]logSettings)
	if !configured {
		for _, name := range selected {
			place := model.PlaceIn(config.Key, "spec.defaultProviders.accessLogging")
			providers[name] = logSettings{place: place}
		}
	}
	named := defaults
	for _, telemetry := range telemetries {
		for i, entry := range telemetry.Spec.GetAccessLogging() {
			if len(entry.GetProviders()) > 0 {
				named = providerNames(entry)
			}
			for _, name := range named {
				if slices.Contains(selected, name) && modeIncludes(entry.GetMatch().GetMode(), role) {
					providers[name] = logSettings{
						disabled: entry.GetDisabled().GetValue(), filter: filters[name],
						place: model.PlaceIn(telemetry.Key, "spec.accessLogging[%d]", i),
					}
				}
			}
		}
	}
	return providers
}

func providerNames(entry *telemetryv1alpha1.AccessLogging) (names []string) {
	for _, provider := range entry.GetProviders() {
		names = append(names, provider.GetName())
	}
	return names
}

// addLog adds a log with an optional filter, also for connections without a filter chain unless the MeshConfig disables
// that.
func addLog(observation *model.Observation, accessLog *accesslogv3.AccessLog, filter *accesslogv3.AccessLogFilter,
	config *model.MeshConfig,
) {
	observation.Logs = append(observation.Logs,
		&accesslogv3.AccessLog{Name: accessLog.GetName(), ConfigType: accessLog.GetConfigType(), Filter: filter})
	if config.Spec.GetDisableEnvoyListenerLog() {
		return
	}
	unmatched := &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ResponseFlagFilter{
		ResponseFlagFilter: &accesslogv3.ResponseFlagFilter{Flags: []string{"NR"}},
	}}
	if filter != nil {
		unmatched = &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_AndFilter{
			AndFilter: &accesslogv3.AndFilter{Filters: []*accesslogv3.AccessLogFilter{unmatched, filter}},
		}}
	}
	observation.Unmatched = append(observation.Unmatched,
		&accesslogv3.AccessLog{Name: accessLog.GetName(), ConfigType: accessLog.GetConfigType(), Filter: unmatched})
}

// extensionProvider is a provider of a MeshConfig.
type extensionProvider = meshv1alpha1.MeshConfig_ExtensionProvider
