package extend

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	httpwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
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

// rank orders WasmPlugins by priority, the highest first, and then those without one.
func rank(spec *extensionsv1alpha1.WasmPlugin) int64 {
	if p := spec.GetPriority(); p != nil {
		return -int64(p.GetValue())
	}
	return math.MaxInt64
}

// plugin returns the filter of a WasmPlugin. One that cannot be run refuses everything, unless it may fail: then it is nil.
func plugin(o *WasmPlugin, cluster func(host string, port uint32) (name, why string), found *model.Findings) *model.Plugin {
	spec, name := o.Spec, o.Key.Namespace+"."+o.Key.Name
	policy := wasmv3.FailurePolicy(wasmv3.FailurePolicy_value[spec.GetFailStrategy().String()]) // its names are the same, but for FAIL_CLOSE
	open, network := policy == wasmv3.FailurePolicy_FAIL_OPEN, spec.GetType() == extensionsv1alpha1.PluginType_NETWORK
	config := &wasmv3.PluginConfig{
		Name: name, RootId: spec.GetPluginName(), FailurePolicy: cmp.Or(policy, wasmv3.FailurePolicy_FAIL_CLOSED),
	}
	if len(spec.GetPluginConfig().GetFields()) > 0 {
		text, _ := json.Marshal(spec.GetPluginConfig().AsMap()) // it was decoded from JSON
		config.Configuration = model.ToAny(wrapperspb.String(string(text)))
	}
	var http, tcp proto.Message = &httpwasmv3.Wasm{Config: config}, &wasmfilterv3.Wasm{Config: config}
	code, field, why := codeOf(spec, cluster)
	config.Vm = &wasmv3.PluginConfig_VmConfig{VmConfig: &wasmv3.VmConfig{
		Runtime: wasmRuntime, Code: code, EnvironmentVariables: environment(spec),
	}}
	if why != "" {
		http, tcp = &httprbacv3.RBAC{Rules: &rbacv3.RBAC{}}, &rbacfilterv3.RBAC{Rules: &rbacv3.RBAC{}, StatPrefix: "wasmplugin."}
		then := "requests get 403"
		if open {
			then = "the plugin is left out"
		} else if network {
			then = "connections are closed"
		}
		if found.Note(model.Place{Of: o.Key, Field: field}, "%s: %s", why, then); open {
			return nil
		}
	}
	if network {
		return &model.Plugin{Spec: spec, Network: model.NetworkFilter(pluginPrefix+name, tcp)}
	}
	return &model.Plugin{Spec: spec, HTTP: model.HTTPFilter(pluginPrefix+name, http)}
}

// environment returns the environment variables of a plugin. One that it has a value for is not read from the Envoy's environment: Envoy
// refuses what has both.
func environment(spec *extensionsv1alpha1.WasmPlugin) *wasmv3.EnvironmentVariables {
	all := &wasmv3.EnvironmentVariables{KeyValues: make(map[string]string)}
	for _, e := range spec.GetVmConfig().GetEnv() {
		if e.GetValueFrom() == extensionsv1alpha1.EnvValueSource_INLINE {
			all.KeyValues[e.GetName()] = e.GetValue()
		}
	}
	for _, e := range spec.GetVmConfig().GetEnv() {
		if _, has := all.KeyValues[e.GetName()]; e.GetValueFrom() == extensionsv1alpha1.EnvValueSource_HOST && !has &&
			!slices.Contains(all.HostEnvKeys, e.GetName()) {
			all.HostEnvKeys = append(all.HostEnvKeys, e.GetName())
		}
	}
	if len(all.KeyValues)+len(all.HostEnvKeys) == 0 {
		return nil
	}
	return all
}

// codeOf returns where Envoy has the module of a plugin from, or why it has none, and because of which field.
func codeOf(spec *extensionsv1alpha1.WasmPlugin, cluster func(host string, port uint32) (name, why string)) (code *corev3.AsyncDataSource,
	field, why string,
) {
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

// Place is the listener that filters of plugins are added to.
type Place struct {
	Mode typev1beta1.WorkloadMode // SERVER for inbound connections, else CLIENT
	Port uint32
}

// has says whether a plugin is for a listener.
func (l Place) has(p *model.Plugin) bool {
	matches := p.Spec.GetMatch()
	return len(matches) == 0 || slices.ContainsFunc(matches, func(m *extensionsv1alpha1.WasmPlugin_TrafficSelector) bool {
		mode := m.GetMode()
		return (mode == typev1beta1.WorkloadMode_UNDEFINED || mode == typev1beta1.WorkloadMode_CLIENT_AND_SERVER || mode == l.Mode) &&
			(len(m.GetPorts()) == 0 || slices.ContainsFunc(m.GetPorts(), func(s *typev1beta1.PortSelector) bool { return s.GetNumber() == l.Port }))
	})
}

// AddHTTP adds the HTTP filters of plugins among the filters that enforce security, with which the list begins, as istiod orders them.
func AddHTTP(e *model.Extension, m *hcmv3.HttpConnectionManager, at Place) {
	m.HttpFilters = among(e, at, m.GetHttpFilters(), func(p *model.Plugin) *hcmv3.HttpFilter { return p.HTTP })
}

// AddNetwork adds the network filters of plugins among the filters that enforce security, with which the list begins.
func AddNetwork(e *model.Extension, list []*listenerv3.Filter, at Place) []*listenerv3.Filter {
	return among(e, at, list, func(p *model.Plugin) *listenerv3.Filter { return p.Network })
}

func among[F interface {
	comparable
	GetName() string
}](e *model.Extension, at Place, list []F, filterOf func(*model.Plugin) F,
) (all []F) {
	if e == nil || len(e.Plugins) == 0 {
		return list
	}
	rest := slices.IndexFunc(list, func(f F) bool { return !isSecurity(f.GetName()) })
	if rest < 0 {
		rest = len(list)
	}
	after := func(suffix string) (end int) {
		for i, f := range list[:rest] {
			if strings.HasSuffix(f.GetName(), suffix) {
				end = i + 1
			}
		}
		return end
	}
	custom := after(".ext_authz")
	tokens := max(after(".jwt_authn"), custom)
	of := func(phases ...extensionsv1alpha1.PluginPhase) (filters []F) {
		var none F
		for _, phase := range phases {
			for _, p := range e.Plugins {
				if f := filterOf(p); f != none && phaseOf(p) == phase && at.has(p) {
					filters = append(filters, f)
				}
			}
		}
		return filters
	}
	return slices.Concat(list[:custom], of(extensionsv1alpha1.PluginPhase_AUTHN), list[custom:tokens],
		of(extensionsv1alpha1.PluginPhase_AUTHZ), list[tokens:rest],
		of(extensionsv1alpha1.PluginPhase_STATS, extensionsv1alpha1.PluginPhase_UNSPECIFIED_PHASE), list[rest:])
}

// phaseOf is the phase of a plugin: one of a newer version is none in particular, so that the plugin is not left out.
func phaseOf(p *model.Plugin) extensionsv1alpha1.PluginPhase {
	if _, known := extensionsv1alpha1.PluginPhase_name[int32(p.Spec.GetPhase())]; !known {
		return extensionsv1alpha1.PluginPhase_UNSPECIFIED_PHASE
	}
	return p.Spec.GetPhase()
}
