package envoy

import (
	"fmt"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/xds"
)

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

// routesOf returns the names of the routes of each domain in a route configuration, and "redirected" for redirected
// domains.
func routesOf(t *testing.T, c *Catalog, name string) map[string]string {
	t.Helper()
	got := make(map[string]string)
	routes, _ := dump(t, c, gatewayNode("default"))[xds.RouteURL+"/"+name].(*routev3.RouteConfiguration)
	for _, virtualHost := range routes.GetVirtualHosts() {
		var names []string
		for _, r := range virtualHost.GetRoutes() {
			names = append(names, r.GetName())
		}
		if virtualHost.GetRequireTls() == routev3.VirtualHost_ALL {
			names = append(names, "redirected")
		}
		for _, d := range virtualHost.GetDomains() {
			got[d] = strings.Join(names, " ")
		}
	}
	return got
}

// Gateways compete for a port, so the resources of one depend on all others: when the older one is deleted, moved or
// added, the routes of the younger one follow.
func TestGatewayPortConflict_FollowsOlderGateway(t *testing.T) {
	const (
		older   = "2020-01-01T00:00:00Z"
		younger = "2021-01-01T00:00:00Z"
		http    = `{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}, {port: {number: 81, name: more, protocol: HTTP}, hosts: ` +
			`[r.internal], tls: {httpsRedirect: true}}`
		tcp = `{port: {number: %d, name: tcp, protocol: TCP}, hosts: ["*"]}`
	)
	var table memstore.Table
	var revision memstore.Revision
	var catalog *Catalog
	change := func(text string, deleted ...resource.Key) {
		t.Helper()
		table.Apply(decoded(t, text), deleted)
		keys, snap, ok := table.Changes(revision)
		catalog.update(keys, snap, ok, true)
		revision = snap.Revision()
	}
	served := map[string]string{"shop.internal": "route"}
	hasNot := map[string]string{}
	catalog = New(&table, Options{})
	change(gatewayOf("younger", younger, http) + answeringAt("v", "shop.internal", "younger",
		"http: [{name: route, directResponse: {status: 204}}]"))
	_, release, err := catalog.Collection(t.Context(), gatewayNode("default"), xds.RouteURL)
	require.NoError(t, err)
	defer release()
	require.Equal(t, served, routesOf(t, catalog, "http.80"))
	for _, port := range []int{80, 81} {
		change(gatewayOf("older", older, fmt.Sprintf(tcp, port)))
		want := map[int]map[string]string{80: hasNot, 81: served}[port]
		require.Equal(t, want, routesOf(t, catalog, "http.80"), "the older one has %d", port)
		want = map[int]map[string]string{80: {"r.internal": "redirected"}, 81: hasNot}[port]
		require.Equal(t, want, routesOf(t, catalog, "http.81"), "the older one has %d", port)
	}
	change("", resource.Key{Kind: resource.Gateway, Namespace: "default", Name: "older"})
	require.Equal(t, served, routesOf(t, catalog, "http.80"))
	require.Equal(t, map[string]string{"r.internal": "redirected"}, routesOf(t, catalog, "http.81"))
}

// A host of a server has the routes of all VirtualServices that cover it, exactly or by a wildcard; a more specific
// host has only the routes of its own VirtualService.
func TestVirtualServices_ExactAndWildcardHosts(t *testing.T) {
	rules := ""
	for name, host := range map[string]string{"exact": "a.example.com", "narrow": "*.example.com", "wide": "*"} {
		rules += answeringAt(name, host, "g", "http: [{name: "+name+", match: [{uri: {prefix: /"+name+"}}], directResponse: {status: 204}}]")
	}
	const server = `{port: {number: 80, name: http, protocol: HTTP}, hosts: ["%"]}`
	for host, want := range map[string]map[string]string{
		"a.example.com": {"a.example.com": "exact narrow wide"},
		"b.example.com": {"b.example.com": "narrow wide"},
		"*.example.com": {"a.example.com": "exact", "*.example.com": "narrow wide"},
		"*":             {"a.example.com": "exact", "*.example.com": "narrow", "*": "wide"},
	} {
		c := catalogOf(t, gatewayOf("g", "2020-01-01T00:00:00Z", strings.Replace(server, "%", host, 1))+rules)
		require.Equal(t, want, routesOf(t, c, "http.80"), host)
	}
}

// A VirtualService that has no routes for a port takes no host there.
func TestVirtualServiceWithoutRoutes_TakesNoHost(t *testing.T) {
	server := `{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*", t.internal], tls: {httpsRedirect: %}}`
	for _, redirect := range []string{"false", "true"} {
		want := map[string]string{"*": "all", "t.internal": "all"}
		if redirect == "true" {
			want = map[string]string{"*": "all redirected", "t.internal": "all redirected"}
		}
		for _, routes := range []string{
			"tls: [{match: [{sniHosts: [t.internal], port: 443}], route: [{destination: {host: one.internal}}]}]",
			"http: [{match: [{uri: {prefix: /}, port: 8080}], directResponse: {status: 204}}]",
		} {
			c := catalogOf(t, gatewayOf("g", "2020-01-01T00:00:00Z", strings.Replace(server, "%", redirect, 1))+
				answeringAt("none", "t.internal", "g", routes)+answeringAt("neither", "u.internal", "g", routes)+
				answeringAt("all", "*", "g", "http: [{name: all, directResponse: {status: 204}}]"))
			require.Equal(t, want, routesOf(t, c, "http.80"), routes)
		}
	}
}

// A VirtualService that is bound to two Gateways which share a port has the routes there that are for either.
func TestGatewaysOnSharedPort_ServeRoutesOfBoth(t *testing.T) {
	const (
		server = `{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}`
		routes = `http: [
  {name: both, match: [{uri: {prefix: /both}}], directResponse: {status: 204}},
  {name: first, match: [{uri: {prefix: /first}, gateways: [one]}], directResponse: {status: 204}},
  {name: second, match: [{gateways: [two]}], directResponse: {status: 204}}]`
	)
	var table memstore.Table
	table.Apply(decoded(t, gatewayOf("one", "2020-01-01T00:00:00Z", server)+gatewayOf("two", "2021-01-01T00:00:00Z", server)+
		answeringAt("v", "shop.internal", "one, two", routes)), nil)
	c := New(&table, Options{})
	c.update(nil, table.Snapshot(), false, true)
	require.Equal(t, map[string]string{"shop.internal": "both first second"}, routesOf(t, c, "http.80"))
}

// Of VirtualServices that have a host, those come first that are exported to the gateway's namespace by name, and of
// the others the oldest.
func TestGateway_PrefersVirtualServiceExportedByName(t *testing.T) {
	text := `apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: front, namespace: default}
spec: {servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]}
`
	for i, exportTo := range []string{"['*']", "[default, other]"} {
		text += fmt.Sprintf("---\napiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: v%d, namespace: shop, "+
			"creationTimestamp: \"202%d-01-01T00:00:00Z\"}\n"+
			"spec: {hosts: [a.example], gateways: [default/front], exportTo: %s, http: [{name: r%d, directResponse: {status: 200}}]}\n", i, i,
			exportTo, i)
	}
	require.Equal(t, map[string]string{"a.example": "r1 r0"}, routesOf(t, catalogOf(t, text), "http.80"))
}
