package kube

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/derive"
	"tributary/sources/kube/kubetest"
)

// TestDerived has a Gateway and a route of the Gateway API. The right to read the route is revoked while the source
// restarts.
func TestDerived(t *testing.T) {
	const gateways, routes = "gateways.gateway.networking.k8s.io", "httproutes.gateway.networking.k8s.io"
	served := istio()
	served["namespaces"], served["gateways.networking.istio.io"] = "v1/Namespace", "networking.istio.io/v1/Gateway"
	served[gateways], served[routes] = "gateway.networking.k8s.io/v1/Gateway", "gateway.networking.k8s.io/v1/HTTPRoute"
	server := kubetest.Start(t, served)
	deny(server, "namespaces")
	server.Put(gateways, "edge", "public", nil, object("spec: {gatewayClassName: istio, listeners: [{name: http, "+
		"port: 8080, protocol: HTTP}]}"))
	route := func(name, host string) {
		server.Put(routes, "edge", name, nil, map[string]any{"spec": map[string]any{
			"parentRefs": []any{object("name: public")}, "hostnames": []string{host},
			"rules": []any{object("backendRefs: [{name: web, port: 80}]")},
		}})
	}
	route("web", "web.example.com")
	source := func() *Source { return quick(t, server, Settings{Derive: &derive.Options{}}) }
	rig := start(t, server, source()).synced()
	hosts := func(want ...string) {
		t.Helper()
		rig.Await("routes of "+strings.Join(want, ", "), func() bool {
			var text strings.Builder
			n := 0
			for o := range rig.table.Snapshot().List(resource.VirtualService, "edge") {
				made, err := resource.MarshalYAML(o)
				require.NoError(t, err)
				n++
				text.Write(made)
			}
			for _, host := range want {
				if !strings.Contains(text.String(), host) {
					return false
				}
			}
			return n == len(want)
		})
	}
	hosts("web.example.com")
	rig.AwaitState(sources.Degraded, "no right to list and watch namespaces")
	route("shop", "shop.example.com")
	hosts("web.example.com", "shop.example.com")
	server.Put(routes, "edge", "shop", nil, object("spec: 7"))
	rig.Await("a warning", func() bool {
		w := rig.Status().Warnings
		return len(w) == 1 && strings.Contains(w[0], "HTTPRoute edge/shop") && strings.Contains(w[0], "the version before it counts")
	})
	hosts("web.example.com", "shop.example.com")

	deny(server, routes)
	rig.table.went()
	rig.Use(source())
	rig.AwaitState(sources.Degraded, "no right to list and watch "+routes+", namespaces")
	hosts("web.example.com", "shop.example.com")
	rig.requireNoDeletion()
	allow(server, routes)
	allow(server, "namespaces")
	server.Delete(routes, "edge", "web")
	route("shop", "new.example.com")
	hosts("new.example.com")
	rig.AwaitState(sources.Healthy, "")
}

// TestGatewayAPI_KindWithoutRightsDelaysNoOther has some kinds be refused from the start, and over a restart.
func TestGatewayAPI_KindWithoutRightsDelaysNoOther(t *testing.T) {
	const grants = "referencegrants.gateway.networking.k8s.io"
	server := gatewayAPI(t)
	server.Serve(grants, "gateway.networking.k8s.io/v1/ReferenceGrant")
	deny(server, grants)
	source := func() *Source {
		return quick(t, server, Settings{Namespaces: []string{"edge", "shop"}, Derive: &derive.Options{}})
	}
	rig := start(t, server, source()).synced()
	rig.awaitVirtualServices(1)
	rig.AwaitState(sources.Degraded, "no right to list and watch "+grants+" in namespace edge")
	rig.Use(source())
	putRoute(server, "shop", "shop.example.com")
	rig.awaitVirtualServices(2)
	rig.requireNoDeletion()
}
