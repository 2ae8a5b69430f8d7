package extend

import (
	"fmt"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/internal/testutil"
	"tributary/resource"
	"tributary/server/envoy/model"
)

const (
	managerType = types + "network.http_connection_manager.v3.HttpConnectionManager"
	secureTLS   = `{name: envoy.transport_sockets.tls, typed_config: ` +
		`{"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.` +
		`DownstreamTlsContext, require_client_certificate: true}}`
	secureTCP = `{name: envoy.filters.network.rbac, typed_config: {"@type": ` + types + `network.rbac.v3.RBAC, stat_prefix: tcp., rules: {}}}`
	tokens    = `{name: envoy.filters.http.jwt_authn, typed_config: {"@type": ` + types + `http.jwt_authn.v3.JwtAuthentication}}`
	asking    = `{name: envoy.filters.http.ext_authz, typed_config: {"@type": ` + types + `http.ext_authz.v3.ExtAuthz}}`
	plain     = `{name: envoy.transport_sockets.tls, typed_config: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.` +
		`DownstreamTlsContext, require_client_certificate: false, common_tls_context: {alpn_protocols: [h2]}}}`
)

// securedListener has a chain for requests and one for connections, both with policies, and one without.
var securedListener = fmt.Sprintf(`
name: 0.0.0.0_80
address: {socket_address: {address: 0.0.0.0, port_value: 80}}
listener_filters: [%s]
filter_chains:
- name: web
  filter_chain_match: {transport_protocol: tls}
  transport_socket: %s
  filters:
  - {name: %s, typed_config: {"@type": %s, stat_prefix: web, route_config: {name: r, virtual_hosts: [{name: v, domains: ["*"], routes: `+
	`[{name: one, match: {prefix: /}, route: {cluster: a}}]}]}, http_filters: [%s, %s, %s, %s, %s]}}
- {name: mail, filter_chain_match: {server_names: [b.example.com]}, filters: [%s, %s]}
- {name: open, filter_chain_match: {server_names: [c.example.com]}, filters: [%[11]s]}
`, inspect, secureTLS, manager, managerType, asking, tokens, rbac, buffer, router, secureTCP, tcp)

// httpPatch is a patch of a filter of requests.
func httpPatch(name, operation, value string) string {
	return fmt.Sprintf("{applyTo: HTTP_FILTER, match: {listener: {filterChain: {filter: {name: %s, subFilter: {name: %s}}}}}, "+
		"patch: {operation: %s, value: %s}}", manager, name, operation, value)
}

// networkPatch is a patch of a filter of connections.
func networkPatch(name, operation, value string) string {
	return fmt.Sprintf("{applyTo: NETWORK_FILTER, match: {listener: {filterChain: {filter: {name: %s}}}}, patch: {operation: %s, value: %s}}",
		name, operation, value)
}

// managerPatch merges fields into the HTTP connection manager.
func managerPatch(fields string) string {
	return networkPatch(manager, "MERGE", `{typed_config: {"@type": `+managerType+`, `+fields+`}}`)
}

func chainPatch(name, operation, value string) string {
	return fmt.Sprintf("{applyTo: FILTER_CHAIN, match: {listener: {filterChain: {name: %s}}}, patch: {operation: %s, value: %s}}",
		name, operation, value)
}

// bypassing has patches that bypass policies by themselves.
func bypassing() []string {
	const open = `{"@type": ` + types + `http.rbac.v3.RBAC, rules: {action: DENY, policies: {}}}`
	perRoute := `{typed_per_filter_config: {envoy.filters.http.rbac: {"@type": ` + types + `http.rbac.v3.RBACPerRoute}}}`
	forbidden := []string{
		managerPatch("merge_slashes: true"), managerPatch("xff_num_trusted_hops: 3"), managerPatch("use_remote_address: true"),
		managerPatch("strip_any_host_port: true"), managerPatch("normalize_path: false"),
		managerPatch("path_with_escaped_slashes_action: KEEP_UNCHANGED"),
		managerPatch("forward_client_cert_details: ALWAYS_FORWARD_ONLY"),
		managerPatch("upgrade_configs: [{upgrade_type: websocket, filters: [" + router + "]}]"),
		networkPatch(manager, "REMOVE", "{}"), networkPatch(manager, "REPLACE", tcp), networkPatch(manager, "INSERT_BEFORE", mongo),
		networkPatch("envoy.filters.network.rbac", "REMOVE", "{}"), networkPatch("envoy.filters.network.rbac", "REPLACE", mongo),
		networkPatch("envoy.filters.network.rbac", "INSERT_BEFORE", mongo),
		networkPatch("envoy.filters.network.rbac", "MERGE", `{typed_config: {"@type": `+types+`network.rbac.v3.RBAC, shadow_rules: {}, `+
			`rules: {action: DENY}}}`),
		networkPatch("envoy.filters.network.rbac", "MERGE", "{name: renamed}"),
		"{applyTo: HTTP_FILTER, patch: {operation: INSERT_FIRST, value: " + lua + "}}",
		chainPatch("web", "REMOVE", "{}"), chainPatch("mail", "REMOVE", "{}"),
		chainPatch("web", "MERGE", "{transport_socket: "+plain+"}"),
		chainPatch("web", "MERGE", "{filter_chain_match: {server_names: [none.example.com]}}"),
		chainPatch("open", "MERGE", "{filter_chain_match: {server_names: [b.example.com], transport_protocol: tls}}"),
		"{applyTo: FILTER_CHAIN, patch: {operation: ADD, value: {name: d, filter_chain_match: {server_names: [d.example.com]}, filters: [" +
			tcp + "]}}}",
		"{applyTo: LISTENER, patch: {operation: REMOVE}}",
		"{applyTo: LISTENER, patch: {operation: MERGE, value: {default_filter_chain: {filters: [" + tcp + "]}}}}",
		"{applyTo: LISTENER, patch: {operation: MERGE, value: {filter_chains: [{filter_chain_match: {destination_port: 1}, filters: [" +
			tcp + "]}]}}}",
		"{applyTo: LISTENER_FILTER, patch: {operation: INSERT_FIRST, value: " + proxy + "}}",
		"{applyTo: LISTENER_FILTER, match: {listener: {listenerFilter: tls}}, patch: {operation: REMOVE}}",
		"{applyTo: VIRTUAL_HOST, patch: {operation: MERGE, value: " + perRoute + "}}",
		"{applyTo: HTTP_ROUTE, patch: {operation: MERGE, value: " + perRoute + "}}",
		"{applyTo: ROUTE_CONFIGURATION, patch: {operation: MERGE, value: " + perRoute + "}}",
		"{applyTo: HTTP_ROUTE, patch: {operation: INSERT_FIRST, value: {match: {prefix: /}, route: {cluster: a}, " + perRoute[1:] + "}}",
	}
	for _, name := range []string{"rbac", "jwt_authn", "ext_authz"} {
		name = "envoy.filters.http." + name
		forbidden = append(forbidden, httpPatch(name, "REMOVE", "{}"), httpPatch(name, "REPLACE", lua), httpPatch(name, "INSERT_BEFORE", lua),
			httpPatch(name, "MERGE", "{name: renamed}"))
	}
	return append(forbidden, httpPatch("envoy.filters.http.rbac", "MERGE", "{typed_config: "+open+"}"),
		httpPatch("envoy.filters.http.rbac", "REPLACE", "{name: envoy.filters.http.rbac, disabled: true, typed_config: "+open+"}"),
		httpPatch("envoy.filters.http.jwt_authn", "INSERT_AFTER", lua))
}

// allowed has patches that leave policies as they are.
var allowed = []string{
	httpPatch("envoy.filters.http.rbac", "INSERT_AFTER", lua), httpPatch("envoy.filters.http.router", "INSERT_BEFORE", lua),
	httpPatch("envoy.filters.http.router", "INSERT_BEFORE", strings.Replace(rbac, "rules: {}", "rules: {action: LOG}", 1)),
	httpPatch("envoy.filters.http.buffer", "REMOVE", "{}"), managerPatch("server_name: own"), managerPatch("request_timeout: 7s"),
	managerPatch("access_log: [{name: log, typed_config: {\"@type\": type.googleapis.com/envoy.extensions.access_loggers.file.v3." +
		"FileAccessLog, path: /dev/stdout}}]"),
	networkPatch("envoy.filters.network.tcp_proxy", "INSERT_BEFORE", mongo), chainPatch("open", "MERGE", "{transport_socket: "+plain+"}"),
	"{applyTo: LISTENER, patch: {operation: MERGE, value: {per_connection_buffer_limit_bytes: 7}}}",
	"{applyTo: VIRTUAL_HOST, patch: {operation: MERGE, value: {require_tls: ALL}}}",
	"{applyTo: HTTP_ROUTE, patch: {operation: INSERT_FIRST, value: {match: {prefix: /}, direct_response: {status: 204}}}}",
}

// extensionOf has EnvoyFilters of a namespace and of the root namespace.
func extensionOf(t *testing.T, guards bool, patches map[string][]string) *model.Extension {
	t.Helper()
	var filters []*Filter
	for _, namespace := range []string{"default", model.RootNamespace} {
		if len(patches[namespace]) > 0 {
			filters = append(filters, decoded(model.Object[*networking.EnvoyFilter]{
				Key:  resource.Key{Kind: resource.EnvoyFilter, Namespace: namespace, Name: "a"},
				Spec: read(t, &networking.EnvoyFilter{}, "configPatches:\n- "+strings.Join(patches[namespace], "\n- ")),
			}))
		}
	}
	e := ForProfile(filters, nil, model.Profile{}, nil)
	e.Guards = guards
	require.Empty(t, texts(e.Findings))
	return e
}

// patchSecured returns the secured listener with patches, or nil, and the findings.
func patchSecured(t *testing.T, guards bool, patches map[string][]string) (*listenerv3.Listener, []string) {
	t.Helper()
	var findings model.Findings
	e := extensionOf(t, guards, patches)
	l, served := New(e, networking.EnvoyFilter_SIDECAR_INBOUND, &findings).Listener(read(t, &listenerv3.Listener{}, securedListener))
	if !served {
		return nil, texts(findings.Sorted())
	}
	return l, texts(findings.Sorted())
}

// A patch that bypasses policies is left out if it is of the Envoy's own namespace and only the root namespace may do so.
func TestGuard_PatchesOfNamespaces(t *testing.T) {
	t.Parallel()
	unpatched := read(t, &listenerv3.Listener{}, securedListener)
	for _, patch := range bypassing() {
		for _, namespace := range []string{"default", model.RootNamespace} {
			for _, guards := range []bool{false, true} {
				l, findings := patchSecured(t, guards, map[string][]string{namespace: {patch}})
				guarded := guards && namespace == "default"
				require.Equal(t, guarded, l != nil && proto.Equal(unpatched, l), "%s in %s, %v: %v", patch, namespace, guards, findings)
				if guarded {
					require.Equal(t, []string{"[0] " + rootOnly}, findings, patch)
				} else {
					require.NotContains(t, strings.Join(findings, "\n"), rootOnly, patch)
				}
			}
		}
	}
	for _, patch := range allowed {
		open, _ := patchSecured(t, false, map[string][]string{"default": {patch}})
		l, findings := patchSecured(t, true, map[string][]string{"default": {patch}})
		require.True(t, proto.Equal(open, l), "%s: %v", patch, findings)
		require.False(t, proto.Equal(unpatched, l), patch)
		require.NotContains(t, strings.Join(findings, "\n"), rootOnly, patch)
	}
}

// Two patches that bypass policies in turns are both left out, with patches of the root namespace and harmless ones between them.
func TestGuard_PairsOfPatches(t *testing.T) {
	testutil.OneGoroutine(t)
	t.Parallel()
	patches := bypassing()
	const inserted = "{applyTo: HTTP_FILTER, patch: {operation: INSERT_FIRST, value: " + asking + "}}"
	for _, root := range [][]string{nil, {inserted}, {httpPatch("envoy.filters.http.jwt_authn", "REMOVE", "{}")}} {
		expected, _ := patchSecured(t, true, map[string][]string{"default": {allowed[0]}, model.RootNamespace: root})
		for i, first := range patches {
			for _, next := range []int{1, 7, 23} {
				second := patches[(i+next)%len(patches)]
				l, findings := patchSecured(t, true, map[string][]string{
					"default": {first, allowed[0], second}, model.RootNamespace: root,
				})
				require.True(t, proto.Equal(expected, l), "%s, %s: %v", first, second, findings)
			}
		}
	}
}

// Listeners without policies and routes without configuration of filters are patched without the guard. Patches above
// the measured number are left out if some bypass policies, and so are patches that Envoy would refuse.
func TestGuard_Limits(t *testing.T) {
	t.Parallel()
	var findings model.Findings
	open := strings.NewReplacer(asking+", ", "", tokens+", ", "", rbac+", ", "", secureTCP+", ", "",
		secureTLS, "null").Replace(securedListener)
	for _, patch := range allowed {
		e := extensionOf(t, true, map[string][]string{"default": {patch, bypassing()[0], chainPatch("mail", "REMOVE", "{}")}})
		_, served := New(e, networking.EnvoyFilter_SIDECAR_INBOUND, &findings).Listener(read(t, &listenerv3.Listener{}, open))
		require.True(t, served)
		require.NotContains(t, strings.Join(texts(findings), "\n"), rootOnly, patch)
	}
	for _, patch := range bypassing() {
		if strings.Contains(patch, "typed_per_filter_config") {
			routes := `{name: "80", virtual_hosts: [{name: v, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: a}}]}]}`
			before := read(t, &routev3.RouteConfiguration{}, routes)
			e := extensionOf(t, true, map[string][]string{"default": {patch}})
			require.True(t, proto.Equal(before, New(e, networking.EnvoyFilter_SIDECAR_INBOUND, &findings).Routes(before)), patch)
		}
	}
	many := []string{httpPatch("envoy.filters.http.buffer", "MERGE", "{name: invalid, typed_config: {\"@type\": "+types+
		"http.buffer.v3.Buffer, max_request_bytes: 0}}")}
	for range maxMeasured {
		many = append(many, "{applyTo: LISTENER, patch: {operation: MERGE, value: {per_connection_buffer_limit_bytes: 7}}}")
	}
	unpatched := read(t, &listenerv3.Listener{}, securedListener)
	limited := read(t, &listenerv3.Listener{}, "{per_connection_buffer_limit_bytes: 7}")
	unpatched.PerConnectionBufferLimitBytes = limited.PerConnectionBufferLimitBytes
	l, _ := patchSecured(t, true, map[string][]string{"default": append(many, httpPatch("envoy.filters.http.rbac", "REMOVE", "{}"))})
	require.Equal(t, summary(t, unpatched), summary(t, l))
}

// Listeners that patches add have no policies.
func TestGuard_AddedListeners(t *testing.T) {
	t.Parallel()
	const added = "{applyTo: LISTENER, patch: {operation: ADD, value: {name: own, " +
		"address: {socket_address: {address: 0.0.0.0, port_value: 81}}, " +
		"filter_chains: [{filters: [" + tcp + "]}]}}}"
	for namespace, guarded := range map[string]bool{"default": true, model.RootNamespace: false} {
		for _, guards := range []bool{false, true} {
			var findings model.Findings
			listeners := Added(extensionOf(t, guards, map[string][]string{namespace: {added}}), model.Sidecar, &findings)
			require.Equal(t, guards && guarded, len(listeners) == 0, "%s, %v: %v", namespace, guards, texts(findings))
		}
	}
}
