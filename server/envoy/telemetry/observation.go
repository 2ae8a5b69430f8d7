package telemetry

import (
	"cmp"
	"fmt"
	"slices"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	uuidv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/request_id/uuid/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	telemetryv1alpha1 "istio.io/api/telemetry/v1alpha1"

	"tributary/server/envoy/model"
)

// OfRequests adds to a manager of HTTP what is logged and traced.
func OfRequests(o *model.Observation, m *hcmv3.HttpConnectionManager) {
	m.RequestIdExtension = &hcmv3.RequestIDExtension{TypedConfig: model.ToAny(&uuidv3.UuidRequestIdConfig{
		UseRequestIdForTraceSampling: wrapperspb.Bool(o == nil || !o.Random),
	})}
	if o != nil {
		m.AccessLog, m.Tracing = o.Logs, o.Tracing
	}
}

// OfConnections is what is logged of connections that are passed on.
func OfConnections(o *model.Observation) []*accesslogv3.AccessLog {
	if o == nil {
		return nil
	}
	return o.Logs
}

// OfStrays adds to a listener what is logged of connections that belong nowhere.
func OfStrays(o *model.Observation, l *listenerv3.Listener) {
	if o != nil {
		l.AccessLog = o.Strays
	}
}

// appliesTo says whether what is said of a mode applies to workloads as clients, or as servers.
func appliesTo(mode, as telemetryv1alpha1.WorkloadMode) bool {
	return mode == as || mode == telemetryv1alpha1.WorkloadMode_CLIENT_AND_SERVER
}

// logged is how a provider logs.
type logged struct {
	off    bool
	filter *telemetryv1alpha1.AccessLogging_Filter
	place  model.Place
}

// AddLogs adds what is logged by workloads as clients, or as servers. Of several Telemetries, the last that names providers says which
// there are; each says of its own, or of those of the one before, whether they log.
func AddLogs(o *model.Observation, all []*model.Telemetry, config *model.MeshConfig, as telemetryv1alpha1.WorkloadMode) {
	providers := config.Spec.GetDefaultProviders().GetAccessLogging()
	how := make(map[string]logged)
	said := false
	filters := make(map[string]*telemetryv1alpha1.AccessLogging_Filter)
	for _, t := range all {
		var names []string
		for _, l := range t.Spec.GetAccessLogging() {
			said = true
			if !appliesTo(l.GetMatch().GetMode(), as) {
				continue
			}
			for _, p := range l.GetProviders() {
				names = append(names, p.GetName())
				filters[p.GetName()] = l.GetFilter()
			}
		}
		if len(names) > 0 {
			providers = names
		}
	}
	if !said {
		for _, name := range providers {
			how[name] = logged{place: model.Place{Of: config.Key, Field: "spec.defaultProviders.accessLogging"}}
		}
	}
	before := config.Spec.GetDefaultProviders().GetAccessLogging()
	for _, t := range all {
		for i, l := range t.Spec.GetAccessLogging() {
			if len(l.GetProviders()) > 0 {
				before = nil
				for _, p := range l.GetProviders() {
					before = append(before, p.GetName())
				}
			}
			for _, name := range before {
				if slices.Contains(providers, name) && appliesTo(l.GetMatch().GetMode(), as) {
					how[name] = logged{
						off: l.GetDisabled().GetValue(), filter: filters[name],
						place: model.Place{Of: t.Key, Field: fmt.Sprintf("spec.accessLogging[%d]", i)},
					}
				}
			}
		}
	}
	type found struct {
		by  *meshv1alpha1.MeshConfig_ExtensionProvider
		how logged
	}
	var list []found
	for name, h := range how {
		p := config.Provider(name)
		if p == nil {
			o.Findings.Note(h.place, "no MeshConfig has a provider %s: it logs nothing", name)
			continue
		}
		if p.GetEnvoyFileAccessLog() == nil {
			o.Findings.Note(h.place, "the provider %s is none that Envoys log by: it logs nothing", name)
			continue
		}
		list = append(list, found{p, h})
	}
	slices.SortFunc(list, func(a, b found) int { return cmp.Compare(a.by.GetName(), b.by.GetName()) })
	for _, f := range list {
		if f.how.off {
			continue
		}
		filter, why := CelFilter(f.how.filter)
		if why != "" { // which is found without clients
			continue
		}
		log := fileLog(config, f.by, &o.Findings)
		addLog(o, log, filter, config)
	}
	if len(list) == 0 && config.Spec.GetAccessLogFile() != "" {
		addLog(o, meshLog(config, config.Spec.GetAccessLogFile(), &o.Findings), nil, config)
	}
}

// addLog adds a log, of what a filter takes if there is one.
func addLog(o *model.Observation, log *accesslogv3.AccessLog, filter *accesslogv3.AccessLogFilter, config *model.MeshConfig) {
	o.Logs = append(o.Logs, &accesslogv3.AccessLog{Name: log.GetName(), ConfigType: log.GetConfigType(), Filter: filter})
	if config.Spec.GetDisableEnvoyListenerLog() {
		return
	}
	stray := &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ResponseFlagFilter{
		ResponseFlagFilter: &accesslogv3.ResponseFlagFilter{Flags: []string{"NR"}},
	}}
	if filter != nil {
		stray = &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_AndFilter{
			AndFilter: &accesslogv3.AndFilter{Filters: []*accesslogv3.AccessLogFilter{stray, filter}},
		}}
	}
	o.Strays = append(o.Strays, &accesslogv3.AccessLog{Name: log.GetName(), ConfigType: log.GetConfigType(), Filter: stray})
}
