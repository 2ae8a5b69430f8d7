package envoy

import (
	"cmp"
	"fmt"
	"slices"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	uuidv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/request_id/uuid/v3"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	telemetryv1alpha1 "istio.io/api/telemetry/v1alpha1"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"tributary/resource"
)

// observation is what clients of a profile log and trace, in all of their listeners. It is not modified once it was made; nil is nothing.
type observation struct {
	logs    []*accesslogv3.AccessLog // of requests and connections
	strays  []*accesslogv3.AccessLog // of connections that belong to no filter chain
	tracing *hcmv3.HttpConnectionManager_Tracing
	random  bool // whether a request is traced does not depend on its id

	objects  []resource.Key // of which it was made
	findings findings
	from     string // equal for what is equal
}

// observation returns what clients of a profile log and trace.
func (m *mesh) observation(p profile, only *sidecarRule) *observation {
	if p.role == proxyless {
		return nil
	}
	o := &observation{}
	config := m.config()
	all := m.telemetriesOf(p)
	if config.spec != nil {
		o.objects = append(o.objects, config.key)
	}
	for _, t := range all {
		o.objects = append(o.objects, t.key)
	}
	o.addLogs(all, config)
	o.addTracing(all, config, func(of *meshv1alpha1.MeshConfig_ExtensionProvider) (string, string, string) {
		return m.clusterOf(of, p, only)
	})
	o.findings = o.findings.sorted()
	var from digest
	for _, l := range append(slices.Clone(o.logs), o.strays...) {
		from.text(string(mustMarshal(l)))
	}
	if from.flag(o.tracing != nil); o.tracing != nil {
		from.text(string(mustMarshal(o.tracing)))
	}
	from.flag(o.random)
	for _, key := range o.objects {
		from.object(key)
	}
	for _, f := range o.findings {
		from.object(f.of)
		from.text(f.field, f.why)
	}
	o.from = string(from)
	return o
}

func (o *observation) equal(other *observation) bool {
	return o == other || o != nil && other != nil && o.from == other.from
}

// ofRequests adds to a manager of HTTP what is logged and traced.
func (o *observation) ofRequests(m *hcmv3.HttpConnectionManager) {
	m.RequestIdExtension = &hcmv3.RequestIDExtension{TypedConfig: toAny(&uuidv3.UuidRequestIdConfig{
		UseRequestIdForTraceSampling: wrapperspb.Bool(o == nil || !o.random),
	})}
	if o != nil {
		m.AccessLog, m.Tracing = o.logs, o.tracing
	}
}

// ofConnections is what is logged of connections that are passed on.
func (o *observation) ofConnections() []*accesslogv3.AccessLog {
	if o == nil {
		return nil
	}
	return o.logs
}

// ofStrays adds to a listener what is logged of connections that belong nowhere.
func (o *observation) ofStrays(l *listenerv3.Listener) {
	if o != nil {
		l.AccessLog = o.strays
	}
}

// isForClients says whether something is said of a workload as a client. It is not said of one as a server here, as connections to it are not intercepted.
func isForClients(mode telemetryv1alpha1.WorkloadMode) bool {
	return mode != telemetryv1alpha1.WorkloadMode_SERVER
}

// logged is how a provider logs.
type logged struct {
	off    bool
	filter *telemetryv1alpha1.AccessLogging_Filter
	place  place
}

// addLogs adds what is logged. Of several Telemetries, the last that names providers says which there are; each says of its own, or of those of the one before,
// whether they log.
func (o *observation) addLogs(all []*telemetry, config *meshConfig) {
	providers := config.spec.GetDefaultProviders().GetAccessLogging()
	how := make(map[string]logged)
	said := false
	filters := make(map[string]*telemetryv1alpha1.AccessLogging_Filter)
	for _, t := range all {
		var names []string
		for _, l := range t.spec.GetAccessLogging() {
			said = true
			if !isForClients(l.GetMatch().GetMode()) {
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
			how[name] = logged{place: place{config.key, "spec.defaultProviders.accessLogging"}}
		}
	}
	before := config.spec.GetDefaultProviders().GetAccessLogging()
	for _, t := range all {
		for i, l := range t.spec.GetAccessLogging() {
			if len(l.GetProviders()) > 0 {
				before = nil
				for _, p := range l.GetProviders() {
					before = append(before, p.GetName())
				}
			}
			for _, name := range before {
				if slices.Contains(providers, name) && isForClients(l.GetMatch().GetMode()) {
					how[name] = logged{off: l.GetDisabled().GetValue(), filter: filters[name], place: place{t.key, fmt.Sprintf("spec.accessLogging[%d]", i)}}
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
		p := config.provider(name)
		if p == nil {
			o.findings.note(h.place, "no MeshConfig has a provider %s: it logs nothing", name)
			continue
		}
		if p.GetEnvoyFileAccessLog() == nil {
			o.findings.note(h.place, "the provider %s is none that Envoys log by: it logs nothing", name)
			continue
		}
		list = append(list, found{p, h})
	}
	slices.SortFunc(list, func(a, b found) int { return cmp.Compare(a.by.GetName(), b.by.GetName()) })
	for _, f := range list {
		if f.how.off {
			continue
		}
		filter, why := celFilter(f.how.filter)
		if why != "" { // which is found without clients
			continue
		}
		log := config.fileLog(f.by, &o.findings)
		o.addLog(log, filter, config)
	}
	if len(list) == 0 && config.spec.GetAccessLogFile() != "" {
		o.addLog(config.meshLog(config.spec.GetAccessLogFile(), &o.findings), nil, config)
	}
}

// addLog adds a log, of what a filter takes if there is one.
func (o *observation) addLog(log *accesslogv3.AccessLog, filter *accesslogv3.AccessLogFilter, config *meshConfig) {
	o.logs = append(o.logs, &accesslogv3.AccessLog{Name: log.GetName(), ConfigType: log.GetConfigType(), Filter: filter})
	if config.spec.GetDisableEnvoyListenerLog() {
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
	o.strays = append(o.strays, &accesslogv3.AccessLog{Name: log.GetName(), ConfigType: log.GetConfigType(), Filter: stray})
}
