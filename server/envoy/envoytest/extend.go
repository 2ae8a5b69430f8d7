package envoytest

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/wrapperspb"
	extensionsv1alpha1 "istio.io/api/extensions/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	typev1beta1 "istio.io/api/type/v1beta1"
)

// patches are of all kinds, good ones and some with which Envoy would refuse the result.
var patches = []string{
	`{"applyTo": "CLUSTER", "match": {%s}, "patch": {"operation": "MERGE", "value": {"connect_timeout": "0.5s"}}}`,
	`{"applyTo": "CLUSTER", "match": {%s, "cluster": {"service": "one.internal"}}, "patch": {"operation": "MERGE", "value": ` +
		`{"lb_policy": "RANDOM"}}}`,
	`{"applyTo": "CLUSTER", "match": {%s, "cluster": {"portNumber": 80}}, "patch": {"operation": "MERGE", "value": {"connect_timeout": ` +
		`"-1s"}}}`,
	`{"applyTo": "CLUSTER", "match": {%s}, "patch": {"operation": "ADD", "value": {"name": "own", "type": "STATIC"}}}`,
	`{"applyTo": "LISTENER", "match": {%s}, "patch": {"operation": "MERGE", "value": {"tcp_backlog_size": 5}}}`,
	`{"applyTo": "LISTENER", "match": {%s, "listener": {"portNumber": 8080}}, "patch": {"operation": "REMOVE"}}`,
	`{"applyTo": "LISTENER_FILTER", "match": {%s, "listener": {"listenerFilter": "envoy.filters.listener.tls_inspector"}}, "patch": {` +
		`"operation": "INSERT_AFTER", "value": {"name": "more", "typed_config": {"@type": ` +
		`"type.googleapis.com/envoy.extensions.filters.listener.http_inspector.v3.HttpInspector"}}}}`,
	`{"applyTo": "FILTER_CHAIN", "match": {%s}, "patch": {"operation": "MERGE", "value": {"transport_socket_connect_timeout": "3s"}}}`,
	`{"applyTo": "NETWORK_FILTER", "match": {%s}, "patch": {"operation": "INSERT_FIRST", "value": {"name": "count", "typed_config": ` +
		`{"@type": ` +
		`"type.googleapis.com/envoy.extensions.filters.network.connection_limit.v3.ConnectionLimit", "stat_prefix": "a", ` +
		`"max_connections": 9}}}}`,
	`{"applyTo": "NETWORK_FILTER", "match": {%s, "listener": {"filterChain": {"filter": {"name": "envoy.filters.network.tcp_proxy"}}}}, ` +
		`"patch": {"operation": "REMOVE"}}`,
	`{"applyTo": "HTTP_FILTER", "match": {%s, "listener": {"filterChain": {"filter": {"name": ` +
		`"envoy.filters.network.http_connection_manager", ` +
		`"subFilter": {"name": "envoy.filters.http.router"}}}}}, "patch": {"operation": "INSERT_BEFORE", "value": {"name": "script", ` +
		`"typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua"}}}}`,
	`{"applyTo": "HTTP_FILTER", "match": {%s}, "patch": {"operation": "ADD", "value": {"name": "last", "typed_config": {"@type": ` +
		`"type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua"}}}}`,
	`{"applyTo": "ROUTE_CONFIGURATION", "match": {%s}, "patch": {"operation": "MERGE", "value": {"response_headers_to_remove": ["x-a"]}}}`,
	`{"applyTo": "VIRTUAL_HOST", "match": {%s}, "patch": {"operation": "MERGE", "value": {"include_attempt_count_in_response": true}}}`,
	`{"applyTo": "VIRTUAL_HOST", "match": {%s}, "patch": {"operation": "ADD", "value": {"name": "own", "domains": ["own.internal"]}}}`,
	`{"applyTo": "VIRTUAL_HOST", "match": {%s}, "patch": {"operation": "ADD", "value": {"name": "same", "domains": ["one.internal"]}}}`,
	`{"applyTo": "HTTP_ROUTE", "match": {%s, "routeConfiguration": {"vhost": {"route": {"action": "ROUTE"}}}}, "patch": {"operation": ` +
		`"INSERT_BEFORE", "value": {"match": {"path": "/own"}, "direct_response": {"status": 204}}}}`,
	`{"applyTo": "HTTP_ROUTE", "match": {%s}, "patch": {"operation": "MERGE", "value": {"request_headers_to_remove": [""]}}}`,
}

// envoyFilter makes an EnvoyFilter of some patches.
func (m *Mesh) envoyFilter() *networking.EnvoyFilter {
	envoyFilter := &networking.EnvoyFilter{Priority: int32(m.rand.IntN(3)) - 1}
	if m.one(3) {
		envoyFilter.WorkloadSelector = &networking.WorkloadSelector{Labels: map[string]string{"app": m.pick("one", "two")}}
	}
	for range 1 + m.rand.IntN(3) {
		match := fmt.Sprintf("\"context\": %q", m.pick("ANY", "GATEWAY", "SIDECAR_OUTBOUND", "SIDECAR_INBOUND"))
		if m.one(4) {
			match += `, "proxy": ` + m.pick(`{"proxyVersion": "^1"}`, `{"metadata": {"NAMESPACE": "shop"}}`)
		}
		patch := &networking.EnvoyFilter_EnvoyConfigObjectPatch{}
		if err := protojson.Unmarshal(fmt.Appendf(nil, patches[m.rand.IntN(len(patches))], match), patch); err != nil {
			panic(err)
		}
		envoyFilter.ConfigPatches = append(envoyFilter.ConfigPatches, patch)
	}
	return envoyFilter
}

// wasmPlugin makes a WasmPlugin of a module that there may not be.
func (m *Mesh) wasmPlugin() *extensionsv1alpha1.WasmPlugin {
	wasmPlugin := &extensionsv1alpha1.WasmPlugin{
		Url:    m.pick("https://one.internal:80/a", "http://two.internal/a", "oci://image"),
		Sha256: m.pick("", "a123456789012345678901234567890123456789012345678901234567890123"),
		Phase:  extensionsv1alpha1.PluginPhase(m.rand.IntN(4)), FailStrategy: extensionsv1alpha1.FailStrategy(m.rand.IntN(3)),
		Type: extensionsv1alpha1.PluginType(m.rand.IntN(3)),
	}
	if m.one(2) {
		wasmPlugin.Priority = wrapperspb.Int32(m.rand.Int32N(3))
	}
	if m.one(3) {
		wasmPlugin.Selector = &typev1beta1.WorkloadSelector{MatchLabels: map[string]string{"app": m.pick("one", "two")}}
	}
	if m.one(3) {
		wasmPlugin.Match = []*extensionsv1alpha1.WasmPlugin_TrafficSelector{{
			Mode: typev1beta1.WorkloadMode(m.rand.IntN(4)), Ports: []*typev1beta1.PortSelector{{Number: 80}},
		}}
	}
	return wasmPlugin
}
