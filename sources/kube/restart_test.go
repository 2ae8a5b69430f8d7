package kube

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/derive"
	"tributary/sources/kube/kubetest"
	"tributary/sources/kube/mapping"
)

const (
	apiGateways = "gateways.gateway.networking.k8s.io"
	apiRoutes   = "httproutes.gateway.networking.k8s.io"
	apiExports  = "serviceexports.multicluster.x-k8s.io"
	apiSlices   = "endpointslices.discovery.k8s.io"
)

// gatewayAPI starts a server with a Gateway and a route for it, and other resources.
func gatewayAPI(t *testing.T, others ...string) *kubetest.Server {
	server := istioServer(t, append(others, "namespaces", "gateways.networking.istio.io", apiGateways, apiRoutes)...)
	server.Put(apiGateways, "edge", "public",
		"spec: {gatewayClassName: istio, listeners: [{name: http, port: 8080, protocol: HTTP}]}")
	putRoute(server, "web", "web.example.com")
	return server
}

func putRoute(server *kubetest.Server, name, host string) {
	server.Put(apiRoutes, "edge", name, "spec: {parentRefs: [{name: public}], hostnames: ["+host+
		"], rules: [{backendRefs: [{name: web, port: 80}]}]}")
}

// putSlice puts the slice of the Service web, with an endpoint that also has the given fields.
func putSlice(server *kubetest.Server, namespace, name, fields string) {
	server.Put(apiSlices, namespace, name, "{metadata: {labels: {kubernetes.io/service-name: web}}, addressType: IPv4, "+
		"ports: [{port: 8080}], endpoints: [{addresses: [10.0.0.1], "+fields+"}]}")
}

// text returns the served ServiceEntry of a Service as YAML, or "".
func (r *rig) text(namespace, service string) string {
	entry := r.table.Snapshot().Get(entryKey(namespace, service+"."+namespace+".svc"))
	if entry == nil {
		return ""
	}
	text, err := resource.MarshalYAML(entry)
	require.NoError(r.T, err)
	return string(text)
}

// virtualServices returns how many are served.
func (r *rig) virtualServices() (n int) {
	for range r.table.Snapshot().List(resource.VirtualService, "") {
		n++
	}
	return n
}

func (r *rig) awaitVirtualServices(n int) {
	r.T.Helper()
	r.Await(fmt.Sprint(n, " VirtualServices"), func() bool { return r.virtualServices() == n })
}

// TestRestart_CRDIsMissing: the objects made of it stay for the hold.
func TestRestart_CRDIsMissing(t *testing.T) {
	exports := &Services{Options: mapping.Options{Export: mapping.ExportServiceExports}}
	for resource, settings := range map[string]Settings{
		apiRoutes: {Derive: &derive.Options{}, Hold: time.Hour}, apiExports: {Services: exports, Hold: time.Hour},
	} {
		server := gatewayAPI(t, "services", apiSlices, apiExports)
		server.Put("services", "shop", "web", "spec: {ports: [{port: 80}]}")
		server.Put(apiExports, "shop", "web", "")
		rig := startQuick(t, server, settings).synced()
		rig.awaitServed("web")
		server.Remove(resource)
		rig.Use(quick(t, server, settings))
		put(server, 1, "a")
		rig.awaitServed("shop/a")
		rig.requireNoDeletion()
	}
}

// TestRestart_NodesMayNotBeRead: regions follow the nodes, and stay, though no Service needs nodes.
func TestRestart_NodesMayNotBeRead(t *testing.T) {
	server := istioServer(t, "services", "nodes", apiSlices)
	server.Put("services", "shop", "web", "spec: {ports: [{port: 80}]}")
	server.Put("nodes", "", "n", "metadata: {labels: {topology.kubernetes.io/region: west}}")
	putSlice(server, "shop", "web-1", "nodeName: 'n'")
	source := func() *Source { return quick(t, server, Settings{Services: &Services{Nodes: true}}) }
	rig := start(t, server, source()).synced()
	rig.serves("ServiceEntry shop/web.shop.svc")
	require.Contains(t, rig.text("shop", "web"), "west")
	server.Put("nodes", "", "n", "metadata: {labels: {topology.kubernetes.io/region: east}}")
	east := func() bool { return strings.Contains(rig.text("shop", "web"), "east") }
	rig.Await("the other region", east)
	deny(server, "nodes")
	rig.Use(source())
	put(server, 1, "a")
	rig.serves("ServiceEntry shop/a", "ServiceEntry shop/web.shop.svc")
	require.True(t, east())
}

// TestClient_IsKeptWhileItWorks after one did not.
func TestClient_IsKeptWhileItWorks(t *testing.T) {
	server := istioServer(t)
	server.Down(true)
	s := quick(t, server, Settings{})
	run := newRun(s, nil)
	ctx := t.Context()
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		run.discover(ctx)
	}()
	looked := func(n int) (clients map[*api]bool) {
		clients = make(map[*api]bool)
		for range n {
			select {
			case <-run.wakeup:
			case <-time.After(awaitLimit):
				require.Fail(t, "it does not look")
			}
			run.mu.Lock()
			if run.discoveryErr == nil {
				clients[run.client] = true
			}
			run.mu.Unlock()
		}
		return clients
	}
	looked(2)
	server.Down(false)
	require.Eventually(t, func() bool { return len(looked(1)) == 1 }, awaitLimit, time.Millisecond)
	require.Len(t, looked(5), 1)
}

// TestRetryAfter_IsRespected though another kind is read again.
func TestRetryAfter_IsRespected(t *testing.T) {
	server := istioServer(t)
	server.Fault(entries, kubetest.Fault{Status: http.StatusTooManyRequests, RetryAfter: 3600})
	deny(server, virtuals)
	rig := startQuick(t, server, Settings{})
	rig.AwaitState(sources.Unreachable, "429")
	server.Requests()
	allow(server, virtuals)
	rig.Await("the other kind is followed", func() bool {
		requests := strings.Join(server.Requests(), " ")
		require.NotContains(t, requests, "/serviceentries?")
		return strings.Contains(requests, "/virtualservices?allowWatchBookmarks")
	})
	for range 5 { // it has looked for the kinds since
		rig.Await("it looks for the kinds", func() bool {
			requests := server.Requests()
			require.NotContains(t, strings.Join(requests, " "), "/serviceentries?")
			return slices.Contains(requests, "/apis")
		})
	}
}
