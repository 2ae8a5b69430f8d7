package extend

import (
	"fmt"
	"strings"
	"testing"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/stretchr/testify/require"
	extensionsv1alpha1 "istio.io/api/extensions/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	typev1beta1 "istio.io/api/type/v1beta1"

	"tributary/resource"
	"tributary/server/envoy/model"
)

func object[T any](kind resource.Kind, namespace, name string, age int64, spec T) model.Object[T] {
	return model.Object[T]{
		Key: resource.Key{Kind: kind, Namespace: namespace, Name: name}, Created: time.Unix(1000-age, 0), Spec: spec,
	}
}

// EnvoyFilters are applied by priority, then those of the root namespace, then the oldest first, and last by name.
func TestOrder(t *testing.T) {
	filter := func(namespace, name string, age int64, priority int32) *Filter {
		return decoded(object(resource.EnvoyFilter, namespace, name, age, read(t, &networking.EnvoyFilter{},
			fmt.Sprintf("{priority: %d, configPatches: [{applyTo: CLUSTER, patch: {operation: REMOVE}}]}", priority))))
	}
	extension := ForProfile([]*Filter{
		filter("default", "late", 9, 1), filter("default", "old", 2, 0), filter("default", "a", 1, 0), filter("default", "b", 1, 0),
		filter("default", "early", 0, -1), filter("istio-system", "root", 0, 0),
	}, nil, model.Profile{}, nil)
	var names []string
	for _, p := range extension.Patches {
		names = append(names, p.Object.Name)
	}
	require.Equal(t, []string{"early", "root", "old", "a", "b", "late"}, names)
	require.Nil(t, ForProfile(nil, nil, model.Profile{}, nil))
}

// Patches are for clients of some versions, and for those that say something of themselves.
func TestProxies(t *testing.T) {
	for _, tt := range []struct {
		match, version string
		metadata       map[string]string
		matches        bool
	}{
		{"proxyVersion: '^1\\.2[67].*'", "1.27.9", nil, true},
		{"proxyVersion: '^1\\.2[67].*'", "1.28.0", nil, false},
		{"proxyVersion: '.*'", "", nil, false},
		{"metadata: {A: b}", "", map[string]string{"A": "b", "C": "d"}, true},
		{"metadata: {A: b}", "", map[string]string{"A": "c"}, false},
		{"metadata: {A: ''}", "", nil, false},
	} {
		f := decoded(object(resource.EnvoyFilter, "default", "a", 0, read(t, &networking.EnvoyFilter{},
			"{configPatches: [{applyTo: CLUSTER, match: {proxy: {"+tt.match+"}}, patch: {operation: REMOVE}}]}")))
		e := ForProfile([]*Filter{f}, nil, model.Profile{Version: tt.version, Metadata: model.LabelText(tt.metadata)}, nil)
		require.Equal(t, tt.matches, len(e.Patches) == 1, tt)
	}
}

// The text that identifies an extension covers all of its patches, and the text of a part covers only the patches of
// this part.
func TestFrom(t *testing.T) {
	text := "- {applyTo: CLUSTER, patch: {operation: MERGE, value: {lb_policy: RANDOM}}}\n"
	first, same := extension(t, text), extension(t, text)
	require.True(t, first.Equal(same))
	for _, different := range []*model.Extension{
		nil, extension(t, "- {applyTo: CLUSTER, patch: {operation: MERGE, value: {lb_policy: MAGLEV}}}\n"),
		extension(t, "- {applyTo: CLUSTER, match: {context: GATEWAY}, patch: {operation: MERGE, value: {lb_policy: RANDOM}}}\n"),
		extension(t, text+"- {applyTo: BOOTSTRAP, patch: {operation: MERGE, value: {}}}\n"),
	} {
		require.False(t, first.Equal(different))
	}
	longer := extension(t, text+"- {applyTo: VIRTUAL_HOST, patch: {operation: REMOVE}}\n")
	require.False(t, first.Equal(longer))
	require.True(t, Only(first, ClusterPhases).Equal(Only(longer, ClusterPhases)))
	require.Nil(t, Only(first, RoutePhases))
	require.NotNil(t, Only(longer, RoutePhases))
}

// knownCluster is the cluster of the only service that there is.
func knownCluster(host string, port uint32) (name, why string) {
	if host != "files.internal" {
		return "", "there is no service " + host + " here"
	}
	return fmt.Sprintf("outbound|%d||%s", port, host), ""
}

// Plugins stand among the filters that enforce security where istiod puts them, those of one phase by priority.
func TestPluginsInOrder(t *testing.T) {
	plugin := func(namespace, name string, spec string) *WasmPlugin {
		o := object(resource.WasmPlugin, namespace, name, 0, read(t, &extensionsv1alpha1.WasmPlugin{}, "{url: 'file:///a', "+spec+"}"))
		return &o
	}
	e := ForProfile(nil, []*WasmPlugin{
		plugin("shop", "none", "phase: AUTHZ"), plugin("shop", "low", "phase: AUTHZ, priority: -5"), plugin("shop", "authn", "phase: AUTHN"),
		plugin("shop", "stats", "phase: STATS"),
		plugin("shop", "any", ""), plugin("shop", "server", "match: [{mode: SERVER}]"), plugin("shop", "port",
			"match: [{ports: [{number: 81}]}]"),
		plugin("shop", "both", "match: [{mode: SERVER}, {mode: CLIENT, ports: [{number: 80}]}]"), plugin("shop", "tcp",
			"type: NETWORK, phase: AUTHZ"),
		plugin("istio-system", "root", "phase: AUTHZ"), plugin("istio-system", "high", "phase: AUTHZ, priority: 5"),
	}, model.Profile{Namespace: "shop"}, nil)
	http := func(names ...string) (list []*hcmv3.HttpFilter) {
		for _, name := range names {
			list = append(list, &hcmv3.HttpFilter{Name: "envoy.filters.http." + name})
		}
		return list
	}
	const wasm = "extensions.istio.io/wasmplugin/"
	for _, tt := range []struct{ filters, want []string }{
		{
			[]string{"rbac", "ext_authz", "jwt_authn", "rbac", "fault", "router"},
			[]string{
				"rbac", "ext_authz", "shop.authn", "jwt_authn", "istio-system.high", "shop.low", "shop.none", "istio-system.root",
				"rbac", "shop.stats",
				"shop.any", "shop.both", "fault", "router",
			},
		},
		{
			[]string{"rbac", "router"},
			[]string{
				"shop.authn", "istio-system.high", "shop.low", "shop.none", "istio-system.root", "rbac", "shop.stats", "shop.any",
				"shop.both", "router",
			},
		},
	} {
		var names []string
		for _, f := range WithPlugins(e, http(tt.filters...), typev1beta1.WorkloadMode_CLIENT, 80) {
			name := f.GetName()
			for _, prefix := range []string{"envoy.filters.http.", wasm} {
				name = strings.TrimPrefix(name, prefix)
			}
			names = append(names, name)
		}
		require.Equal(t, tt.want, names)
	}
	list := WithPlugins(e, []*listenerv3.Filter{{Name: "envoy.filters.network.rbac"}, {Name: "tcp"}}, typev1beta1.WorkloadMode_CLIENT, 80)
	require.Equal(t, wasm+"shop.tcp", list[0].GetName())
	require.Equal(t, "envoy.filters.network.rbac", list[1].GetName())
	require.Len(t, list, 3)
}

// A plugin of a phase of a newer version may refuse requests, so it is not left out.
func TestPluginOfAnUnknownPhase(t *testing.T) {
	p := object(resource.WasmPlugin, "default", "p", 0, &extensionsv1alpha1.WasmPlugin{Url: "file:///a.wasm", Phase: 17})
	e := ForProfile(nil, []*WasmPlugin{&p}, model.Profile{}, nil)
	require.Len(t, WithPlugins(e, []*hcmv3.HttpFilter(nil), typev1beta1.WorkloadMode_SERVER, 80), 1)
}
