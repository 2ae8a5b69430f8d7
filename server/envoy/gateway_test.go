package envoy

import (
	"fmt"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/stretchr/testify/require"

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
	s := newSteps(Options{})
	served := map[string]string{"shop.internal": "route"}
	hasNot := map[string]string{}
	s.change(t, gatewayOf("younger", younger, http)+answeringAt("v", "shop.internal", "younger",
		"http: [{name: route, directResponse: {status: 204}}]"))
	_, release, err := s.c.Collection(t.Context(), gatewayNode("default"), xds.RouteURL)
	require.NoError(t, err)
	defer release()
	require.Equal(t, served, routesOf(t, s.c, "http.80"))
	for _, port := range []int{80, 81} {
		s.change(t, gatewayOf("older", older, fmt.Sprintf(tcp, port)))
		want := map[int]map[string]string{80: hasNot, 81: served}[port]
		require.Equal(t, want, routesOf(t, s.c, "http.80"), "the older one has %d", port)
		want = map[int]map[string]string{80: {"r.internal": "redirected"}, 81: hasNot}[port]
		require.Equal(t, want, routesOf(t, s.c, "http.81"), "the older one has %d", port)
	}
	s.change(t, "", resource.Key{Kind: resource.Gateway, Namespace: "default", Name: "older"})
	require.Equal(t, served, routesOf(t, s.c, "http.80"))
	require.Equal(t, map[string]string{"r.internal": "redirected"}, routesOf(t, s.c, "http.81"))
}
