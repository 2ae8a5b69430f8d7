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

// slotOf orders WasmPlugins by phase. Those without one come last.
func slotOf(spec *extensionsv1alpha1.WasmPlugin) uint32 { return uint32(spec.GetPhase() - 1) } //nolint:gosec // it may wrap

// rank orders WasmPlugins by priority, the highest first, and then those without one.
func rank(spec *extensionsv1alpha1.WasmPlugin) int64 {
	if p := spec.GetPriority(); p != nil {
		return -int64(p.GetValue())
	}
	return math.MaxInt64
}

// ClusterOf returns the cluster of a port of a host, or why there is none.
type ClusterOf func(host string, port uint32) (name, why string)

// plugin returns the filter of a WasmPlugin. One that cannot be run refuses everything, unless it may fail: then it is nil.
func plugin(o *WasmPlugin, cluster ClusterOf, found *model.Findings) *model.Plugin {
	spec, name := o.Spec, o.Key.Namespace+"."+o.Key.Name
	policy := wasmv3.FailurePolicy(wasmv3.FailurePolicy_value[spec.GetFailStrategy().String()]) // its names are the same, but for FAIL_CLOSE
	config := &wasmv3.PluginConfig{
		Name: name, RootId: spec.GetPluginName(), FailurePolicy: cmp.Or(policy, wasmv3.FailurePolicy_FAIL_CLOSED),
	}
	code, field, why := codeOf(spec, cluster)
	if len(spec.GetPluginConfig().GetFields()) > 0 {
		text, err := json.Marshal(spec.GetPluginConfig().AsMap())
		if err != nil { // NaN, from a binary upstream
			field, why = "spec.pluginConfig", "it is no JSON: "+err.Error()
		}
		config.Configuration = model.ToAny(wrapperspb.String(string(text)))
	}
	config.Vm = &wasmv3.PluginConfig_VmConfig{VmConfig: &wasmv3.VmConfig{
		Runtime: wasmRuntime, Code: code, EnvironmentVariables: environment(spec),
	}}
	var http, tcp proto.Message = &httpwasmv3.Wasm{Config: config}, &wasmfilterv3.Wasm{Config: config}
	then := "requests get 403"
	if why != "" {
		http, tcp = &httprbacv3.RBAC{Rules: &rbacv3.RBAC{}}, &rbacfilterv3.RBAC{Rules: &rbacv3.RBAC{}, StatPrefix: "wasmplugin."}
	}
	p := &model.Plugin{Key: o.Key, Spec: spec, Filter: model.HTTPFilter(pluginPrefix+name, http)}
	if spec.GetType() == extensionsv1alpha1.PluginType_NETWORK {
		p.Filter, then = model.NetworkFilter(pluginPrefix+name, tcp), "connections are closed"
	}
	if why != "" && policy == wasmv3.FailurePolicy_FAIL_OPEN {
		p, then = nil, "the plugin is left out"
	}
	if why != "" {
		found.Note(model.Place{Of: o.Key, Field: field}, "%s: %s", why, then)
	}
	return p
}

// environment returns the environment variables of a plugin. One that it has a value for is not read from the Envoy's environment: Envoy
// refuses what has both.
func environment(spec *extensionsv1alpha1.WasmPlugin) *wasmv3.EnvironmentVariables {
	values, host := make(map[string]string), make(map[string]bool)
	for _, e := range spec.GetVmConfig().GetEnv() {
		switch e.GetValueFrom() {
		case extensionsv1alpha1.EnvValueSource_INLINE:
			values[e.GetName()] = e.GetValue()
		case extensionsv1alpha1.EnvValueSource_HOST:
			host[e.GetName()] = true
		}
	}
	maps.DeleteFunc(host, func(name string, _ bool) bool { _, has := values[name]; return has })
	if len(values)+len(host) == 0 {
		return nil
	}
	return &wasmv3.EnvironmentVariables{KeyValues: values, HostEnvKeys: slices.Sorted(maps.Keys(host))}
}

// codeOf returns where Envoy has the module of a plugin from, or why it has none, and because of which field.
func codeOf(spec *extensionsv1alpha1.WasmPlugin, cluster ClusterOf) (code *corev3.AsyncDataSource, field, why string) {
	if path, local := strings.CutPrefix(spec.GetUrl(), "file://"); local {
		return &corev3.AsyncDataSource{Specifier: &corev3.AsyncDataSource_Local{Local: &corev3.DataSource{
			Specifier: &corev3.DataSource_Filename{Filename: path},
		}}}, "", ""
	}
	at, err := security.ParseJwksURI(spec.GetUrl())
	if err != nil {
		return nil, "spec.url", "images are fetched by Istio's agent, and not by Envoy: put the module on the machine (file://), or on a " +
			"web server"
	}
	if spec.GetSha256() == "" {
		return nil, "spec.sha256", "Envoy fetches nothing of which it does not know the checksum"
	}
	name, why := cluster(at.Hostname.String(), uint32(at.Port)) //nolint:gosec // of digits
	return &corev3.AsyncDataSource{Specifier: &corev3.AsyncDataSource_Remote{Remote: &corev3.RemoteDataSource{
		HttpUri: &corev3.HttpUri{
			Uri: spec.GetUrl(), Timeout: durationpb.New(fetchTimeout), HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: name},
		},
		Sha256: spec.GetSha256(),
	}}}, "spec.url", why
}

// isAt says whether a plugin is for a listener with a port; mode is SERVER for inbound connections, else CLIENT.
func isAt(p *model.Plugin, mode typev1beta1.WorkloadMode, port uint32) bool {
	matches := p.Spec.GetMatch()
	return len(matches) == 0 || slices.ContainsFunc(matches, func(m *extensionsv1alpha1.WasmPlugin_TrafficSelector) bool {
		return (is(m.GetMode(), mode) || m.GetMode() == typev1beta1.WorkloadMode_CLIENT_AND_SERVER) && (len(m.GetPorts()) == 0 ||
			slices.ContainsFunc(m.GetPorts(), func(s *typev1beta1.PortSelector) bool { return s.GetNumber() == port }))
	})
}

// NotePlugins notes the plugins that have filters in an outbound listener with a port, which has requests or not.
func NotePlugins(e *model.Extension, port uint32, requests bool, findings *model.Findings) {
	if e == nil {
		return
	}
	for _, plugin := range e.Plugins {
		used := requests || plugin.Spec.GetType() == extensionsv1alpha1.PluginType_NETWORK
		if used && isAt(plugin, typev1beta1.WorkloadMode_CLIENT, port) {
			findings.Applied(model.Place{Of: plugin.Key})
		}
	}
}

// WithPlugins adds the filters of plugins that are for a listener, see isAt, to a list of HTTP or network filters, among those that enforce
// security, with which the list begins, as istiod orders them.
func WithPlugins[F filter](e *model.Extension, list []F, mode typev1beta1.WorkloadMode, port uint32) []F {
	if e == nil || len(e.Plugins) == 0 {
		return list
	}
	security := slices.IndexFunc(list, func(f F) bool { return !isSecurity(f.GetName()) })
	if security < 0 {
		security = len(list)
	}
	after := func(suffix string) (end int) {
		for i, f := range list[:security] {
			if strings.HasSuffix(f.GetName(), suffix) {
				end = i + 1
			}
		}
		return end
	}
	custom := after(".ext_authz")
	tokens := max(after(".jwt_authn"), custom)
	for _, p := range slices.Backward(e.Plugins) { // which are sorted by slot
		f, ok := p.Filter.(F)
		if !ok || !isAt(p, mode, port) {
			continue
		}
		at := security
		switch p.Spec.GetPhase() {
		case extensionsv1alpha1.PluginPhase_AUTHN:
			at = custom
		case extensionsv1alpha1.PluginPhase_AUTHZ:
			at = tokens
		}
		list = slices.Insert(list, at, f)
	}
	return list
}
