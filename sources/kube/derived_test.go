package kube

import (
	"strings"
	"testing"

	"tributary/sources"
	"tributary/sources/derive"
)

// TestDerived has a route of the Gateway API that becomes invalid. The right to read it is revoked while the source
// restarts.
func TestDerived(t *testing.T) {
	server := gatewayAPI(t)
	deny(server, "namespaces")
	source := func() *Source { return quick(t, server, Settings{Derive: &derive.Options{}}) }
	rig := start(t, server, source()).synced()
	rig.awaitVirtualServices(1)
	rig.AwaitState(sources.Degraded, "no right to list and watch namespaces")
	putRoute(server, "shop", "shop.example.com")
	rig.awaitVirtualServices(2)
	server.Put(apiRoutes, "edge", "shop", "spec: 7")
	rig.Await("a warning", func() bool {
		w := rig.Status().Warnings
		return len(w) == 1 && strings.Contains(w[0], "HTTPRoute edge/shop") && strings.Contains(w[0], "the version before it counts")
	})
	rig.awaitVirtualServices(2)

	deny(server, apiRoutes)
	rig.table.went()
	rig.Use(source())
	rig.AwaitState(sources.Degraded, "no right to list and watch "+apiRoutes+", namespaces")
	rig.awaitVirtualServices(2)
	rig.requireNoDeletion()
	allow(server)
	server.Delete(apiRoutes, "edge", "web")
	putRoute(server, "shop", "new.example.com")
	rig.awaitVirtualServices(1)
	rig.AwaitState(sources.Healthy, "")
}

// TestGatewayAPI_KindWithoutRightsDelaysNoOther has some kinds be refused from the start, and over a restart.
func TestGatewayAPI_KindWithoutRightsDelaysNoOther(t *testing.T) {
	server := gatewayAPI(t)
	server.Serve(apiGrants)
	for _, namespace := range []string{"edge", "shop"} {
		server.Deny(apiGrants + "/" + namespace)
	}
	source := func() *Source {
		return quick(t, server, Settings{Namespaces: []string{"edge", "shop"}, Derive: &derive.Options{}})
	}
	rig := start(t, server, source()).synced()
	rig.awaitVirtualServices(1)
	rig.AwaitState(sources.Degraded, "no right to list and watch "+apiGrants+" in namespace edge")
	rig.Use(source())
	putRoute(server, "shop", "shop.example.com")
	rig.awaitVirtualServices(2)
	rig.requireNoDeletion()
}
