package envoy

import (
	"fmt"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/server/envoy/model"
	"tributary/server/xds"
)

// manyRoutes has VirtualServices of many hosts and routes to a service.
func manyRoutes(objects, hosts, routes int, gateways string) string {
	var text strings.Builder
	text.WriteString(target(80) + "\n---\napiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: base, namespace: default}\n" +
		"spec: {selector: {app: one}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}\n")
	for o := range objects {
		fmt.Fprintf(&text, "---\napiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: v%d, namespace: default}\n"+
			"spec: {gateways: %s, hosts: %s, http: %s}\n", o, gateways, many(hosts, fmt.Sprintf("h#.o%d.example.com", o)),
			many(routes, "{match: [{uri: {prefix: /p#}}], route: [{destination: {host: target.example.com}}]}"))
	}
	return text.String()
}

func target(port int) string {
	return fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: target, namespace: default}\n"+
		"spec: {hosts: [target.example.com], resolution: DNS, ports: [{number: %d, name: http, protocol: HTTP}]}", port)
}

// All hosts of a VirtualService share its routes, which are made once. If each virtual host repeated many, there is one.
func TestSharedRoutes_OncePerVirtualService(t *testing.T) {
	for name, tt := range map[string]struct{ objects, hosts, routes, virtualHosts int }{
		"few routes":                  {2, 20, 3, 40},
		"many routes of a host":       {1, 1, 3000, 1},
		"many routes":                 {2, 40, 200, 2},
		"many routes of one, not all": {1, 200, 50, 1},
	} {
		for _, client := range nodesWithProducts {
			t.Run(name+"/"+client, func(t *testing.T) {
				n, gateways, route := node("default", client, ""), "[mesh]", "/80"
				if client == "gateway" {
					n, gateways, route = gatewayNode("default"), "[base]", "/http.80"
				}
				catalog := catalogOf(t, manyRoutes(tt.objects, tt.hosts, tt.routes, gateways))
				routes := dump(t, catalog, n)[xds.RouteURL+route].(*routev3.RouteConfiguration)
				var hosts, domains int
				for _, virtualHost := range routes.GetVirtualHosts() {
					if strings.HasPrefix(virtualHost.GetName(), "h") {
						hosts, domains = hosts+1, domains+len(virtualHost.GetDomains())
						require.Len(t, virtualHost.GetRoutes(), tt.routes)
						require.True(t, virtualHost.GetIncludeRequestAttemptCount())
						require.Equal(t, model.HostPort(virtualHost.GetDomains()[0], 80), virtualHost.GetName())
					}
				}
				require.Equal(t, tt.virtualHosts, hosts)
				require.Equal(t, tt.objects*tt.hosts, domains)
				require.LessOrEqual(t, sizeOf(&catalog.bodies.hosts), tt.objects+1) // a gateway has none of the service
			})
		}
	}
}

// BenchmarkManyRoutes changes a service that is the target of 10 VirtualServices with 500 hosts and 200 routes.
func BenchmarkManyRoutes(b *testing.B) {
	var table memstore.Table
	table.Apply(decoded(b, manyRoutes(10, 500, 200, "[mesh]")), nil)
	catalog := catalogOfTable(&table)
	require.NotZero(b, catalog.newScope(model.ProfileOf(nodes[0])).cost())
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		changed := decoded(b, target(81+i%100))
		table.Apply(changed, nil)
		catalog.reset(table.Snapshot(), true)
	}
}
