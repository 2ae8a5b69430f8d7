package envoy

import (
	"log/slog"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/memstore"
	"tributary/resource"
)

// A VirtualService of all hosts has the hosts of all servers of a port.
func TestServersOfOnePortShareAVirtualService(t *testing.T) {
	server := func(host string) *networking.Server {
		return &networking.Server{Port: &networking.Port{Number: 80, Name: "http", Protocol: "HTTP"}, Hosts: []string{host}}
	}
	gateway, err := resource.New(resource.Meta{Key: resource.Key{Kind: resource.Gateway, Namespace: "default", Name: "front"}}, &networking.Gateway{
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
	require.Equal(t, map[string]int{"a.internal": 1, "b.internal": 1, "*": 0}, routes)
}
