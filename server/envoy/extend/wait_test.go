package extend

import (
	"fmt"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/model"
)

func nested(levels int) string {
	return strings.Repeat("{a: ", levels) + "1" + strings.Repeat("}", levels)
}

// An Envoy would acknowledge these listeners and keep the earlier ones, with their policies, for a long time. A patch
// that causes this is left out, and the others apply.
func TestPatches_AddNoUnboundedFetch(t *testing.T) {
	const fetched = `{applyTo: HTTP_FILTER, patch: {operation: INSERT_FIRST, value: {name: a, typed_config: {"@type": ` + types + `http.%s}}}}`
	const remote = `http_uri: {uri: "http://a/b", cluster: c, timeout: %s}`
	const module = `wasm.v3.Wasm, config: {vm_config: {code: {remote: {sha256: a, ` + remote + `%s}}}}`
	const keys = `jwt_authn.v3.JwtAuthentication, providers: {a: {remote_jwks: {async_fetch: {}, ` + remote + `%s}}}`
	const manager = `{applyTo: NETWORK_FILTER, patch: {operation: %s, value: {name: envoy.filters.network.http_connection_manager, ` +
		`typed_config: {"@type": ` + types + `network.http_connection_manager.v3.HttpConnectionManager, %s}}}}`
	const managerFields = `stat_prefix: a, http_filters: [*router], `
	const named = "match: {listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager}}}}, patch"
	for _, c := range []struct{ value, why string }{
		{
			`{applyTo: LISTENER, patch: {operation: MERGE, value: {metadata: {filter_metadata: {a: ` + nested(120) + `}}}}}`,
			"in one another",
		},
		{
			`{applyTo: LISTENER, patch: {operation: MERGE, value: {metadata: {filter_metadata: {a: ` + nested(15) + `}}}}}`,
			"",
		},
		{`{applyTo: LISTENER, patch: {operation: MERGE, value: {api_listener: {}}}}`, "api_listener"},
		{fmt.Sprintf(manager, "MERGE", `rds: {route_config_name: b}`), "routes"},
		{fmt.Sprintf(manager, "MERGE", `rds: {route_config_name: "80"}`), ""},
		{
			fmt.Sprintf(manager, "MERGE", `rds: {route_config_name: b, config_source: {ads: {}, initial_fetch_timeout: 0s}}`),
			"routes",
		},
		{fmt.Sprintf(manager, "REPLACE", managerFields+`rds: {route_config_name: b, config_source: {ads: {}}}`), "routes"},
		{fmt.Sprintf(manager, "REPLACE", managerFields+`rds: {route_config_name: "80", config_source: {ads: {}}}`), ""},
		{fmt.Sprintf(manager, "REPLACE", managerFields+`route_config: {name: b}`), ""},
		{fmt.Sprintf(fetched, fmt.Sprintf(module, "30s", "")), ""},
		{
			fmt.Sprintf(fetched, fmt.Sprintf(module, "30s", ", retry_policy: {num_retries: 4000000000}")),
			"wait for http://a/b",
		},
		{fmt.Sprintf(fetched, fmt.Sprintf(module, "61s", "")), "wait for http://a/b"},
		{fmt.Sprintf(fetched, fmt.Sprintf(keys, "5s", "")), ""},
		{
			fmt.Sprintf(fetched, fmt.Sprintf(keys, "1s", ", retry_policy: {retry_back_off: {base_interval: 1s, max_interval: 7200s}}")),
			"wait for",
		},
	} {
		patches := "- " + c.value + "\n- {applyTo: LISTENER, patch: {operation: MERGE, value: {stat_prefix: other}}}\n"
		patches = strings.Replace(patches, "patch", named, 1)
		listener := read(t, &listenerv3.Listener{}, `
name: 0.0.0.0_80
address: {socket_address: {address: 0.0.0.0, port_value: 80}}
filter_chains:
- filters:
  - name: envoy.filters.network.http_connection_manager
    typed_config:
      "@type": `+types+`network.http_connection_manager.v3.HttpConnectionManager
      stat_prefix: a
      rds: {route_config_name: "80", config_source: {ads: {}, initial_fetch_timeout: 0s}}
      http_filters: [*router]
`)
		var findings model.Findings
		e := extension(t, patches)
		now, _ := New(e, networking.EnvoyFilter_GATEWAY, &findings).Listener(listener)
		require.Equal(t, "other", now.GetStatPrefix(), c.value)
		lines := fmt.Sprint(texts(e.Findings), texts(findings))
		require.Contains(t, lines, c.why, c.value)
		require.Equal(t, c.why == "", lines == "[] []", "%s: %s", c.value, lines)
	}
}

// The wait of a patch for other resources ends after Envoy's default time.
func TestPatches_WaitByDefault(t *testing.T) {
	e := extension(t, `- {applyTo: CLUSTER, patch: {operation: ADD, value: {name: a, connect_timeout: 1s, type: EDS,
  eds_cluster_config: {eds_config: {ads: {}, initial_fetch_timeout: 0s}}}}}`)
	require.NotContains(t, fmt.Sprint(e.Patches[0].Value), "initial_fetch_timeout")
	require.Empty(t, e.Findings)
}
