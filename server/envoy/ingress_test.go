package envoy

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/memstore"
	"tributary/resource"
)

// A VirtualService of all hosts has the hosts of all servers of a port.
func TestServersOnSharedPort_ShareVirtualService(t *testing.T) {
	server := func(host string) *networking.Server {
		return &networking.Server{Port: &networking.Port{Number: 80, Name: "http", Protocol: "HTTP"}, Hosts: []string{host}}
	}
	gateway, err := resource.New(resource.Meta{Key: resource.Key{Kind: resource.Gateway, Namespace: "default", Name: "front"}},
		&networking.Gateway{
			Selector: map[string]string{"app": "one"}, Servers: []*networking.Server{server("a.internal"), server("b.internal")},
		})
	require.NoError(t, err)
	rule := virtual(t, "all", &networking.VirtualService{Hosts: []string{"*"}, Gateways: []string{"front"}, Http: []*networking.HTTPRoute{{
		DirectResponse: &networking.HTTPDirectResponse{Status: 204},
	}}})
	var table memstore.Table
	table.Apply([]*resource.Resource{gateway, rule}, nil)
	c := New(&table, Options{Log: slog.New(slog.DiscardHandler)})
	c.update(nil, table.Snapshot(), false, true)
	routes := make(map[string]int)
	for _, m := range dump(t, c, gatewayNode("default")) {
		if m, ok := m.(*routev3.RouteConfiguration); ok {
			for _, v := range m.GetVirtualHosts() {
				for _, d := range v.GetDomains() {
					routes[d] = len(v.GetRoutes())
				}
			}
		}
	}
	require.Equal(t, map[string]int{"a.internal": 1, "b.internal": 1}, routes)
}

// A host of a server has the routes of all VirtualServices that cover it, exactly or by a wildcard; it is redirected
// also without a VirtualService, and other hosts get 404.
func TestIngressDomain_HasRoutesOfAllVirtualServices(t *testing.T) {
	var table memstore.Table
	catalog := New(&table, Options{Log: slog.New(slog.DiscardHandler)})
	var revision memstore.Revision
	routes := func(text string) map[string]string {
		t.Helper()
		table.Apply(decoded(t, text), nil)
		keys, snap, ok := table.Changes(revision)
		catalog.update(keys, snap, ok, true)
		revision = snap.Revision()
		got := make(map[string]string)
		for _, m := range dump(t, catalog, gatewayNode("default")) {
			if m, ok := m.(*routev3.RouteConfiguration); ok {
				for _, virtualHost := range m.GetVirtualHosts() {
					for _, r := range virtualHost.GetRoutes() {
						got[virtualHost.GetDomains()[0]] += fmt.Sprint(r.GetDirectResponse().GetStatus(), " ")
					}
					if virtualHost.GetRequireTls() == routev3.VirtualHost_ALL {
						got[virtualHost.GetDomains()[0]] += "redirected"
					}
					if len(virtualHost.GetRoutes()) == 0 {
						got[virtualHost.GetDomains()[0]] += " " + virtualHost.GetName()
					}
				}
			}
		}
		return got
	}
	const gateway = `
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: front, namespace: default}
spec:
  selector: {app: one}
  servers:
  - {port: {number: 80, name: http, protocol: HTTP}, hosts: [one.internal, two.internal], tls: {httpsRedirect: %}}
`
	const rule = `---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: %, namespace: default, creationTimestamp: "2020-01-01T00:00:00Z"}
spec: {hosts: ["%"], gateways: [front], http: [{match: [{uri: {prefix: /%}}], directResponse: {status: %}}]}
`
	fill := func(text string, values ...string) string {
		for _, w := range values {
			text = strings.Replace(text, "%", w, 1)
		}
		return text
	}
	require.Equal(t, map[string]string{"*": " blackhole:80"}, routes(fill(gateway, "false")))
	require.Equal(t, map[string]string{"one.internal": "redirected one.internal:80", "two.internal": "redirected two.internal:80"},
		routes(fill(gateway, "true")))
	require.Equal(t, map[string]string{"one.internal": "201 redirected", "two.internal": "redirected two.internal:80"},
		routes(fill(rule, "one", "one.internal", "a", "201")))
	require.Equal(t, map[string]string{"one.internal": "202 201 redirected", "two.internal": "202 redirected"},
		routes(fill(rule, "all", "*", "b", "202")))
	require.Equal(t, map[string]string{"one.internal": "202 201 ", "two.internal": "202 "}, routes(fill(gateway, "false")))
}
