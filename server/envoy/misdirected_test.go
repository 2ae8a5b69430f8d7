package envoy

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/server/xds"
)

// answerTo returns the name or the status of the route that Envoy takes for a host: that of the longest domain, and there
// the first route that matches.
func answerTo(routes *routev3.RouteConfiguration, host string) string {
	var chosen *routev3.VirtualHost
	longest := -1
	name, _, _ := strings.Cut(host, ":")
	for _, candidate := range routes.GetVirtualHosts() {
		for _, domain := range candidate.GetDomains() {
			suffix, wildcard := strings.CutPrefix(domain, "*")
			switch {
			case domain == name:
				chosen, longest = candidate, 1<<10
			case wildcard && strings.HasSuffix(name, suffix) && len(suffix) > longest:
				chosen, longest = candidate, len(suffix)
			}
		}
	}
	for _, route := range chosen.GetRoutes() {
		matches := true
		for _, header := range route.GetMatch().GetHeaders() {
			pattern := header.GetStringMatch().GetSafeRegex().GetRegex()
			matches = matches && regexp.MustCompile("^(?:"+pattern+")$").MatchString(host)
		}
		if matches && route.GetName() != "" {
			return route.GetName()
		} else if matches {
			return fmt.Sprint(route.GetDirectResponse().GetStatus())
		}
	}
	return "404"
}

// TestMisdirectedRequests holds which HTTPS listener of Gateway API answers 421 on its connections: the one that is not
// the most exact one for the host.
func TestMisdirectedRequests(t *testing.T) {
	listener := func(name, host string, derived bool) string {
		text := gatewayOf(name, "2020-01-01T00:00:00Z", fmt.Sprintf(
			"{port: {number: 443, name: default, protocol: HTTPS}, hosts: [%q], tls: {mode: SIMPLE, credentialName: c}}", host))
		if derived {
			text = strings.Replace(text, "metadata: {", `metadata: {annotations: {internal.istio.io/gateway-semantics: gateway}, `, 1)
		}
		return text + answeringAt(name, map[bool]string{true: host, false: "shop." + strings.TrimPrefix(host, "*.")}[host != "*.b.org"], name,
			"http: [{name: "+name+", directResponse: {status: 204}}]")
	}
	var table memstore.Table
	catalog := New(&table, Options{})
	text := listener("exact", "a.org", true) + listener("wildcard", "*.b.org", true) + listener("inner", "x.b.org", true) +
		listener("written", "c.org", false)
	table.Apply(decoded(t, text), nil)
	keys, snapshot, ok := table.Changes(0)
	catalog.update(keys, snapshot, ok, true)
	ask := func(name, host string) string {
		resources := dump(t, catalog, gatewayNode("default"))
		routes, ok := resources[xds.RouteURL+"/https.443.default."+name+".default"].(*routev3.RouteConfiguration)
		require.True(t, ok, name)
		return answerTo(routes, host)
	}
	expect := func(rows map[[2]string]string) {
		t.Helper()
		for row, want := range rows {
			require.Equal(t, want, ask(row[0], row[1]), row)
		}
	}
	expect(map[[2]string]string{
		{"exact", "a.org"}: "exact", {"exact", "a.org:443"}: "exact", {"exact", "x.b.org"}: "421", {"exact", "other.org"}: "404",
		{"wildcard", "shop.b.org"}: "wildcard", {"wildcard", "x.b.org"}: "421", {"wildcard", "y.b.org"}: "404",
		{"wildcard", "a.org:443"}: "421", {"inner", "x.b.org"}: "inner", {"inner", "y.b.org"}: "421", {"exact", "c.org"}: "421",
		{"written", "c.org"}: "written", {"written", "a.org"}: "404",
	})
	table.Apply(decoded(t, listener("all", "*", true)), nil)
	revision := snapshot.Revision()
	keys, snapshot, ok = table.Changes(revision)
	catalog.update(keys, snapshot, ok, true)
	expect(map[[2]string]string{
		{"exact", "other.org"}: "421", {"wildcard", "y.b.org"}: "404", {"wildcard", "Y.B.ORG:443"}: "404", {"wildcard", "x.b.org:443"}: "421",
		{"all", "other.org"}: "all", {"all", "a.org"}: "421", {"all", "y.b.org"}: "421",
	})
}

// gatewayOf is a Gateway with one server.
func gatewayOf(name, created, server string) string {
	return fmt.Sprintf("---\napiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: %s, namespace: default, creationTimestamp: "+
		"%q}\nspec: {selector: {app: one}, servers: [%s]}\n",
		name, created, server)
}

// answeringAt is a VirtualService of a host that is bound to a Gateway, and answers itself.
func answeringAt(name, host, gateway, route string) string {
	return fmt.Sprintf("---\napiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: %s, namespace: default}\nspec: "+
		"{hosts: [%q], gateways: [%s], %s}\n", name, host, gateway, route)
}
