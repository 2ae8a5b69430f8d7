package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// EnvoyFilters change a real Envoy as a gateway: the local rate limit of Istio's documentation, a script before the
// router, a cluster merged and one added, a route, a virtual host and a listener added. A message names a broken patch,
// and all else is served.
func TestEnvoyFilterOnTributary(t *testing.T) {
	t.Parallel()
	plain, limited, addedPort := fixture.FreePort(t), fixture.FreePort(t), fixture.FreePort(t)
	backendTwo := backend(t, "two")
	mesh := startMesh(t, "services.yaml", gatewayServices(backend(t, "one"), backendTwo, backendTwo))
	mesh.write(t, "gateway.yaml", fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: front, namespace: default}
spec:
  selector: {istio: ingressgateway}
  servers:
  - {port: {number: %d, name: plain, protocol: HTTP}, hosts: [shop.example.com]}
  - {port: {number: %d, name: limited, protocol: HTTP}, hosts: [shop.example.com]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: shop, namespace: default}
spec:
  hosts: [shop.example.com]
  gateways: [front]
  http: [{route: [{destination: {host: one.mesh.internal}}]}]
`, plain, limited))
	envoy := fixture.StartGateway(t, mesh.XDS, t.TempDir())
	expectResponse := func(port int, host, path string, status int, body string) {
		t.Helper()
		envoy.Await(t, func() error {
			got, err := askEdge(t, port, http.MethodGet, host, path)
			if err == nil && (got.status != status || got.body != body) {
				err = fmt.Errorf("%s%s: %d %q", host, path, got.status, got.body)
			}
			return err
		})
	}
	expectResponse(plain, "shop.example.com", "/", 200, "one")

	mesh.write(t, "filters.yaml", fmt.Sprintf(rateLimit, limited)+fmt.Sprintf(filters, plain, backendTwo, addedPort))
	expectResponse(plain, "shop.example.com", "/", 200, "one")
	expectResponse(plain, "shop.example.com", "/patched", 418, "")
	expectResponse(plain, "own.example.com", "/", 200, "two")
	expectResponse(addedPort, "anything", "/", 200, "two")
	expectHeader := func(name, value string) {
		t.Helper()
		envoy.Await(t, func() error {
			got, err := askEdge(t, plain, http.MethodGet, "shop.example.com", "/")
			if err == nil && got.header.Get(name) != value {
				err = fmt.Errorf("%s: %q", name, got.header.Get(name))
			}
			return err
		})
	}
	expectHeader("x-script", "yes")
	_, clusters, err := fixture.Get(t.Context(), envoy.URL("/clusters"))
	require.NoError(t, err)
	require.Contains(t, clusters, "outbound|80||one.mesh.internal::high_priority::max_requests::7\n")
	statuses := make(map[int]int)
	for range 8 {
		got, err := askEdge(t, limited, http.MethodGet, "shop.example.com", "/")
		require.NoError(t, err)
		statuses[got.status]++
		if got.status == http.StatusTooManyRequests {
			require.Equal(t, "true", got.header.Get("x-local-rate-limit"))
		}
	}
	require.Equal(t, map[int]int{200: 4, 429: 4}, statuses)
	mesh.rejectedNothing(t)

	mesh.write(t, "broken.yaml", broken)
	expectHeader("x-late", "yes")
	explanation := mesh.Ask(t, "explain", "envoyfilter", "default/broken")
	require.Contains(t, explanation, "spec.configPatches[0] has no effect on Envoys: Envoy would refuse it: envoy.filters.http.router has to "+
		"be the last HTTP filter")
	require.Contains(t, explanation, "spec.configPatches[1] has no effect on Envoys: Envoy would refuse it: invalid Cluster.ConnectTimeout")
	require.Contains(t, explanation, "spec.configPatches[2] has no effect on Envoys: no client has anything that it matches")
	expectResponse(plain, "own.example.com", "/", 200, "two")
	mesh.rejectedNothing(t)

	mesh.write(t, "filters.yaml", fmt.Sprintf(rateLimit, limited))
	expectResponse(plain, "own.example.com", "/", 404, "")
	expectResponse(plain, "shop.example.com", "/patched", 200, "one")
	expectHeader("x-script", "")
	mesh.rejectedNothing(t)
}

// rateLimit is that of https://istio.io/latest/docs/tasks/policy-enforcement/rate-limit, for a port of a gateway.
const rateLimit = `apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: filter-local-ratelimit-svc, namespace: istio-system}
spec:
  workloadSelector: {labels: {istio: ingressgateway}}
  configPatches:
  - applyTo: HTTP_FILTER
    match: {context: GATEWAY, listener: {portNumber: %d, filterChain: {filter: {name: envoy.filters.network.http_connection_manager}}}}
    patch:
      operation: INSERT_BEFORE
      value:
        name: envoy.filters.http.local_ratelimit
        typed_config:
          "@type": type.googleapis.com/udpa.type.v1.TypedStruct
          type_url: type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit
          value:
            stat_prefix: http_local_rate_limiter
            token_bucket: {max_tokens: 4, tokens_per_fill: 4, fill_interval: 60s}
            filter_enabled: {runtime_key: local_rate_limit_enabled, default_value: {numerator: 100, denominator: HUNDRED}}
            filter_enforced: {runtime_key: local_rate_limit_enforced, default_value: {numerator: 100, denominator: HUNDRED}}
            response_headers_to_add: [{append_action: OVERWRITE_IF_EXISTS_OR_ADD, header: {key: x-local-rate-limit, value: "true"}}]
---
`

const filters = `apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: all, namespace: default}
spec:
  configPatches:
  - applyTo: HTTP_FILTER
    match: {context: GATEWAY, listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager,
      subFilter: {name: envoy.filters.http.router}}}}}
    patch:
      operation: INSERT_BEFORE
      value:
        name: script
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
          default_source_code: {inline_string: "function envoy_on_response(h) h:headers():add('x-script', 'yes') end"}
  - applyTo: CLUSTER
    match: {context: GATEWAY, cluster: {service: one.mesh.internal, portNumber: 80}}
    patch: {operation: MERGE, value: {circuit_breakers: {thresholds: [{priority: HIGH, max_requests: 7}]}}}
  - applyTo: HTTP_ROUTE
    match: {context: GATEWAY, routeConfiguration: {portNumber: %[1]d, gateway: "", vhost: {domainName: shop.example.com}}}
    patch: {operation: INSERT_FIRST, value: {match: {path: /patched}, direct_response: {status: 418}}}
  - applyTo: VIRTUAL_HOST
    match: {context: GATEWAY, routeConfiguration: {portNumber: %[1]d}}
    patch: {operation: ADD, value: {name: own, domains: [own.example.com], routes: [{match: {prefix: /}, route: {cluster: own}}]}}
  - applyTo: CLUSTER
    match: {context: GATEWAY}
    patch:
      operation: ADD
      value:
        name: own
        type: STATIC
        connect_timeout: 1s
        load_assignment: {cluster_name: own, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1,
          port_value: %[2]d}}}}]}]}
  - applyTo: LISTENER
    match: {context: GATEWAY}
    patch:
      operation: ADD
      value:
        name: own
        address: {socket_address: {address: 127.0.0.1, port_value: %[3]d}}
        filter_chains:
        - filters:
          - name: envoy.filters.network.tcp_proxy
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: own,
              cluster: own}
`

const broken = `apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: broken, namespace: default}
spec:
  configPatches:
  - applyTo: HTTP_FILTER
    match: {context: GATEWAY}
    patch: {operation: ADD, value: {name: late, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua}}}
  - applyTo: CLUSTER
    match: {context: GATEWAY}
    patch: {operation: MERGE, value: {connect_timeout: -1s}}
  - applyTo: HTTP_FILTER
    match: {context: GATEWAY, listener: {portNumber: 1}}
    patch: {operation: INSERT_FIRST, value: {name: nowhere,
      typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua}}}
  - applyTo: HTTP_FILTER
    match: {context: GATEWAY}
    patch:
      operation: INSERT_FIRST
      value:
        name: late
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation
          mutations: {response_mutations: [{append: {header: {key: x-late, value: "yes"}}}]}
`
