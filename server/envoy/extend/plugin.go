package extend

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	httpwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	rbacfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	wasmfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/wasm/v3"
	wasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/wasm/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	extensionsv1alpha1 "istio.io/api/extensions/v1alpha1"
	typev1beta1 "istio.io/api/type/v1beta1"
	"istio.io/istio/pkg/config/security"

	"tributary/server/envoy/model"
)

const (
	wasmRuntime  = "envoy.wasm.runtime.v8"
	fetchTimeout = 30 * time.Second // of a module
)

// phaseRank orders WasmPlugins by phase. Those without one come last.
func phaseRank(spec *extensionsv1alpha1.WasmPlugin) uint32 {
	return uint32(spec.GetPhase() - 1) //nolint:gosec // it may wrap
}

// priorityRank orders WasmPlugins by priority, the highest first, and then those without one.
func priorityRank(spec *extensionsv1alpha1.WasmPlugin) int64 {
	if p := spec.GetPriority(); p != nil {
		return -int64(p.GetValue())
	}
	return math.MaxInt64
}

// ClusterOf returns the cluster of a host's port, or the reason why it has none.
type ClusterOf func(host string, port uint32) (name, why string)

// pluginFilter returns the filter of a WasmPlugin. A plugin that cannot run becomes a filter that refuses all traffic,
// or nil if its failStrategy is FAIL_OPEN.
func pluginFilter(object *WasmPlugin, cluster ClusterOf, findings *model.Findings) *model.Plugin {
	spec, name := object.Spec, object.Key.Namespace+"."+object.Key.Name
	// its names are the same, but for FAIL_CLOSE
	policy := wasmv3.FailurePolicy(wasmv3.FailurePolicy_value[spec.GetFailStrategy().String()])
	config := &wasmv3.PluginConfig{
		Name: name, RootId: spec.GetPluginName(), FailurePolicy: cmp.Or(policy, wasmv3.FailurePolicy_FAIL_CLOSED),
	}
	code, field, reason := moduleSource(spec, cluster)
	if len(spec.GetPluginConfig().GetFields()) > 0 {
		text, err := json.Marshal(spec.GetPluginConfig().AsMap())
		if err != nil { // NaN, from a binary upstream
			field, reason = "spec.pluginConfig", "it is no JSON: "+err.Error()
		}
		config.Configuration = model.ToAny(wrapperspb.String(string(text)))
	}
	config.Vm = &wasmv3.PluginConfig_VmConfig{VmConfig: &wasmv3.VmConfig{
		Runtime: wasmRuntime, Code: code, EnvironmentVariables: environment(spec),
	}}
	var http, message proto.Message = &httpwasmv3.Wasm{Config: config}, &wasmfilterv3.Wasm{Config: config}
	consequence := "requests get 403"
	if reason != "" {
		http, message = &httprbacv3.RBAC{Rules: &rbacv3.RBAC{}},
			&rbacfilterv3.RBAC{Rules: &rbacv3.RBAC{}, StatPrefix: "wasmplugin."}
	}
	plugin := &model.Plugin{Key: object.Key, Spec: spec, Filter: model.HTTPFilter(pluginPrefix+name, http)}
	if spec.GetType() == extensionsv1alpha1.PluginType_NETWORK {
		plugin.Filter, consequence = model.NetworkFilter(pluginPrefix+name, message), "connections are closed"
	}
	if reason != "" && policy == wasmv3.FailurePolicy_FAIL_OPEN {
		plugin, consequence = nil, "the plugin is left out"
	}
	if reason != "" {
		findings.Note(model.Place{Object: object.Key, Field: field}, "%s: %s", reason, consequence)
	}
	return plugin
}

// environment returns the environment variables of a plugin. A variable with a value is not read from the Envoy's
// environment, because Envoy refuses a name in both lists.
func environment(spec *extensionsv1alpha1.WasmPlugin) *wasmv3.EnvironmentVariables {
	values, host := make(map[string]string), make(map[string]bool)
	for _, envVar := range spec.GetVmConfig().GetEnv() {
		switch envVar.GetValueFrom() {
		case extensionsv1alpha1.EnvValueSource_INLINE:
			values[envVar.GetName()] = envVar.GetValue()
		case extensionsv1alpha1.EnvValueSource_HOST:
			host[envVar.GetName()] = true
		}
	}
	maps.DeleteFunc(host, func(name string, _ bool) bool { _, inline := values[name]; return inline })
	if len(values)+len(host) == 0 {
		return nil
	}
	return &wasmv3.EnvironmentVariables{KeyValues: values, HostEnvKeys: slices.Sorted(maps.Keys(host))}
}

// moduleSource returns the source of a plugin's module, or the reason why it has none, and the field at fault.
func moduleSource(spec *extensionsv1alpha1.WasmPlugin, cluster ClusterOf) (code *corev3.AsyncDataSource, field,
	reason string,
) {
	if path, local := strings.CutPrefix(spec.GetUrl(), "file://"); local {
		return &corev3.AsyncDataSource{Specifier: &corev3.AsyncDataSource_Local{Local: &corev3.DataSource{
			Specifier: &corev3.DataSource_Filename{Filename: path},
		}}}, "", ""
	}
	location, err := security.ParseJwksURI(spec.GetUrl())
	if err != nil {
		return nil, "spec.url", "images are fetched by Istio's agent, and not by Envoy: put the module on the machine " +
			"(file://), or on a " +
			"web server"
	}
	if spec.GetSha256() == "" {
		return nil, "spec.sha256", "Envoy fetches only modules with a known checksum"
	}
	name, reason := cluster(location.Hostname.String(), uint32(location.Port)) //nolint:gosec // of digits
	return &corev3.AsyncDataSource{Specifier: &corev3.AsyncDataSource_Remote{Remote: &corev3.RemoteDataSource{
		HttpUri: &corev3.HttpUri{
			Uri: spec.GetUrl(), Timeout: durationpb.New(fetchTimeout), HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: name},
		},
		Sha256: spec.GetSha256(),
	}}}, "spec.url", reason
}

// appliesAt says whether a plugin applies to a listener with a port. mode is SERVER for inbound connections, else
// CLIENT.
func appliesAt(plugin *model.Plugin, mode typev1beta1.WorkloadMode, port uint32) bool {
	matches := plugin.Spec.GetMatch()
	return len(matches) == 0 || slices.ContainsFunc(matches, func(m *extensionsv1alpha1.WasmPlugin_TrafficSelector) bool {
		return (satisfies(m.GetMode(), mode) || m.GetMode() == typev1beta1.WorkloadMode_CLIENT_AND_SERVER) &&
			(len(m.GetPorts()) == 0 ||
				slices.ContainsFunc(m.GetPorts(), func(s *typev1beta1.PortSelector) bool { return s.GetNumber() == port }))
	})
}

// NotePlugins records the plugins with filters in an outbound listener. requests says that the listener serves HTTP.
func NotePlugins(extension *model.Extension, port uint32, requests bool, findings *model.Findings) {
	if extension == nil {
		return
	}
	for _, plugin := range extension.Plugins {
		used := requests || plugin.Spec.GetType() == extensionsv1alpha1.PluginType_NETWORK
		if used && appliesAt(plugin, typev1beta1.WorkloadMode_CLIENT, port) {
			findings.Applied(model.Place{Object: plugin.Key})
		}
	}
}

// WithPlugins adds the filters of plugins that apply at a listener to a list of HTTP or network filters. The list
// begins with security filters; the plugins go between them in the order of istiod.
func WithPlugins[F typedFilter](extension *model.Extension, list []F, mode typev1beta1.WorkloadMode, port uint32) []F {
	if extension == nil || len(extension.Plugins) == 0 {
		return list
	}
	securityEnd := slices.IndexFunc(list, func(filter F) bool { return !isSecurity(filter.GetName()) })
	if securityEnd < 0 {
		securityEnd = len(list)
	}
	after := func(suffix string) (end int) {
		for i, filter := range list[:securityEnd] {
			if strings.HasSuffix(filter.GetName(), suffix) {
				end = i + 1
			}
		}
		return end
	}
	afterAuthz := after(".ext_authz")
	afterTokens := max(after(".jwt_authn"), afterAuthz)
	for _, plugin := range slices.Backward(extension.Plugins) { // sorted by phase
		filter, ok := plugin.Filter.(F)
		if !ok || !appliesAt(plugin, mode, port) {
			continue
		}
		position := securityEnd
		switch plugin.Spec.GetPhase() {
		case extensionsv1alpha1.PluginPhase_AUTHN:
			position = afterAuthz
		case extensionsv1alpha1.PluginPhase_AUTHZ:
			position = afterTokens
		}
		list = slices.Insert(list, position, filter)
	}
	return list
}
