package envoy

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/resource"
	"tributary/server/xds"
)

const rejectedBase = `---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: a, namespace: default}
spec:
  hosts: [a.example]
  ports: [{number: 80, name: http, protocol: HTTP}, {number: 81, name: tcp, protocol: TCP}]
  resolution: STATIC
  endpoints: [{address: 10.0.0.1}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: vs, namespace: default}
spec: {hosts: [a.example], http: [{route: [{destination: {host: a.example, port: {number: 80}}}]}]}
---
apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: innocent, namespace: default}
spec: {tracing: [{disableSpanReporting: true}]}
`

const (
	patchKind  = "---\napiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {name: culprit, namespace: default}\nspec: "
	pluginKind = "---\napiVersion: extensions.istio.io/v1alpha1\nkind: WasmPlugin\nmetadata: {name: culprit, namespace: default}\nspec: "
	logKind    = "---\napiVersion: telemetry.istio.io/v1\nkind: Telemetry\nmetadata: {name: culprit, namespace: default}\nspec: "
	fileLog    = `{"@type": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog, path: /BAD}`
	lua        = `{name: lua, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua, inlineCode: "-- BAD"}}`
)

// TestRejectionNamesExtension finds the one object that put a bad part into a shared resource: as a change, and from the start.
func TestRejectionNamesExtension(t *testing.T) {
	for name, culprit := range map[string]string{
		"HTTP filter": patchKind + `{configPatches: [{applyTo: HTTP_FILTER, match: {context: SIDECAR_OUTBOUND, ` +
			`listener: {filterChain: {filter: ` +
			`{name: envoy.filters.network.http_connection_manager}}}}, patch: {operation: INSERT_FIRST, value: ` + lua + `}}]}`,
		"network filter": patchKind + `{configPatches: [{applyTo: NETWORK_FILTER, match: {context: SIDECAR_OUTBOUND, listener: {filterChain: ` +
			`{filter: {name: envoy.filters.network.tcp_proxy}}}}, patch: {operation: MERGE, value: {typed_config: {"@type": ` +
			`type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: BAD}}}}]}`,
		"listener": patchKind + `{configPatches: [{applyTo: LISTENER, match: {context: SIDECAR_OUTBOUND}, patch: {operation: MERGE, value: ` +
			`{access_log: [{name: f, typed_config: ` + fileLog + `}]}}}]}`,
		"cluster": patchKind + `{configPatches: [{applyTo: CLUSTER, match: {context: SIDECAR_OUTBOUND, cluster: {service: a.example}}, ` +
			`patch: {operation: MERGE, value: {alt_stat_name: BAD}}}]}`,
		"cluster without hosts": patchKind + `{configPatches: [{applyTo: CLUSTER, match: {context: SIDECAR_OUTBOUND, cluster: ` +
			`{name: PassthroughCluster}}, patch: {operation: MERGE, value: {alt_stat_name: BAD}}}]}`,
		"added cluster": patchKind + `{configPatches: [{applyTo: CLUSTER, match: {context: SIDECAR_OUTBOUND}, patch: {operation: ADD, value: ` +
			`{name: own, alt_stat_name: BAD}}}]}`,
		"route": patchKind + `{configPatches: [{applyTo: HTTP_ROUTE, match: {context: SIDECAR_OUTBOUND}, patch: {operation: MERGE, value: ` +
			`{name: BAD}}}]}`,
		"virtual host": patchKind + `{configPatches: [{applyTo: VIRTUAL_HOST, match: {context: SIDECAR_OUTBOUND, routeConfiguration: {vhost: ` +
			`{name: "a.example:80"}}}, patch: {operation: MERGE, value: {request_headers_to_remove: [BAD]}}}]}`,
		"plugin":  pluginKind + `{url: "file:///BAD.wasm", match: [{mode: CLIENT}]}`,
		"network": pluginKind + `{url: "file:///BAD.wasm", type: NETWORK, match: [{mode: CLIENT, ports: [{number: 81}]}]}`,
		"log": logKind + `{accessLogging: [{providers: [{name: envoy}], ` +
			`filter: {expression: "response.code >= 400 || request.path == 'BAD'"}}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			wanted := decoded(t, culprit)[0]
			dislikes := func(url, name string, body []byte) string {
				if url == xds.ListenerURL && name == "virtualOutbound" && bytes.Contains(body, []byte(bad)) {
					return ""
				}
				if why := disliking(url, name, body); why != "" {
					return name + ": " + why
				}
				return ""
			}
			types := []string{xds.ListenerURL}
			client := node("default", "REDIRECT", "")

			later := serve(t, decoded(t, rejectedBase)...)
			c := later.critic(client, dislikes, types...)
			later.eventually(func() bool { return c.hasRoutes("a.example") && c.holds(xds.ListenerURL+"/0.0.0.0_80") }, "the base is accepted")
			later.table.Apply(append(decoded(t, culprit), answering(t, "unrelated", "x")), nil)
			later.firstRejection(func(coll *xds.Collection, r xds.Rejection) {
				changed, complete := later.catalog.ChangedSince(coll, r)
				require.True(t, complete)
				require.Equal(t, wanted.Key(), changed[0], r.Name)
				require.NotContains(t, changed, resource.Key{Kind: resource.Telemetry, Namespace: "default", Name: "innocent"})
			})

			first := serve(t, append(decoded(t, rejectedBase), wanted)...)
			first.critic(client, dislikes, types...)
			first.firstRejection(func(coll *xds.Collection, rejection xds.Rejection) {
				changed, _ := first.catalog.ChangedSince(coll, rejection)
				require.Contains(t, changed, wanted.Key(), rejection.Name)
				if wanted.Key().Kind != resource.Telemetry {
					require.Equal(t, wanted.Key(), changed[0], rejection.Name)
				}
			})
		})
	}
}

// holds says whether the client accepted a resource.
func (c *critic) holds(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resources[name] != nil
}

// firstRejection waits for a rejection and calls check with each that there is.
func (s *served) firstRejection(check func(*xds.Collection, xds.Rejection)) {
	s.Helper()
	s.eventually(func() (rejected bool) {
		for _, client := range s.engine.Clients() {
			for _, status := range client.Types {
				rejected = rejected || len(status.Rejected) > 0
			}
		}
		return rejected
	}, "a rejection")
	for _, client := range s.engine.Clients() {
		for _, status := range client.Types {
			for _, r := range status.Rejected {
				check(status.Collection, r)
			}
		}
	}
}
