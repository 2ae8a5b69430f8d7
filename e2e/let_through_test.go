package e2e

import (
	"strings"
	"testing"

	"tributary/e2e/fixture"
)

// Envoy lets these requests through, as the page on security between Envoys says: another form of a host or of a header
// name; a gateway does not believe X-Forwarded-For.
func TestLetThroughByEnvoy(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, "", policy("deny", "{action: DENY, rules: [{to: [{operation: {hosts: [a.example]}}]}, {to: [{operation: {hosts: "+
		"[b.example, 'b.example:*']}}]}, {when: [{key: 'request.headers[x-role]', values: [admin]}]}, {from: [{source: {remoteIpBlocks: "+
		"[1.2.3.4]}}]}]}"))
	get := func(host string, status int, headers ...string) wantedStatus {
		w := wantedStatus{probe{method: "GET", host: host, headers: map[string]string{}}, status}
		if len(headers) > 0 {
			w.headers[headers[0]] = headers[1]
		}
		return w
	}
	g.expect(t, "policy", []wantedStatus{
		get("a.example", 403), get("a.example:8080", 200), get("b.example", 403), get("b.example:8080", 403),
		get("c.example", 403, "x-role", "admin"), get("c.example", 200, "x_role", "admin"), get("c.example", 200, "X-Forwarded-For", "1.2.3.4"),
	})
}

// An EnvoyFilter of the gateway's namespace removes a policy of the root namespace, unless envoy.weakeningFilters forbids it.
func TestWeakeningFilters(t *testing.T) {
	t.Parallel()
	for value, status := range map[string]int{"any": 200, "root": 403} {
		t.Run(value, func(t *testing.T) {
			t.Parallel()
			g := startGuarded(t, "", strings.ReplaceAll(policy("deny", "{action: DENY, rules: [{}]}"),
				"namespace: default", "namespace: istio-system"))
			deny := []wantedStatus{{probe{method: "GET", host: "a.example"}, 403}}
			g.expect(t, "policy", deny)
			write(t, g.dir, "filter.yaml", `apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: remove, namespace: default}
spec:
  configPatches:
  - applyTo: HTTP_FILTER
    match: {listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager,
      subFilter: {name: envoy.filters.http.rbac}}}}}
    patch: {operation: REMOVE}
`)
			tributary := fixture.StartTributaryWith(t, "envoy: {weakeningFilters: "+value+"}\nconfigSources: [{name: mesh, address: 'fs://"+
				g.dir+"', guard: 'off'}]\n")
			g.envoy.Kill() // the next one has its ports
			g.envoy = fixture.StartGateway(t, tributary.XDS, "/nonexistent")
			deny[0].status = status
			g.expect(t, "filter of the namespace", deny)
		})
	}
}
