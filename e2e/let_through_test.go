package e2e

import (
	"testing"
)

// What Envoy lets through by the page on security between Envoys: another form of a host or of a header name; a gateway does not believe
// X-Forwarded-For.
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
