package kube

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
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

// gatewayAPI starts a server with a Gateway and a route for it.
func gatewayAPI(t *testing.T) *kubetest.Server {
	served := istio()
	served["namespaces"], served["gateways.networking.istio.io"] = "v1/Namespace", "networking.istio.io/v1/Gateway"
	served[apiGateways], served[apiRoutes] = "gateway.networking.k8s.io/v1/Gateway", "gateway.networking.k8s.io/v1/HTTPRoute"
	server := kubetest.Start(t, served)
	server.Put(apiGateways, "edge", "public", nil, object("spec: {gatewayClassName: istio, "+
		"listeners: [{name: http, port: 8080, protocol: HTTP}]}"))
	putRoute(server, "web", "web.example.com")
	return server
}

func putRoute(server *kubetest.Server, name, host string) {
	server.Put(apiRoutes, "edge", name, nil, map[string]any{"spec": map[string]any{
		"parentRefs": []any{object("name: public")}, "hostnames": []string{host},
		"rules": []any{object("backendRefs: [{name: web, port: 80}]")},
	}})
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

// TestRestart_RightThatWasNeverGranted: Namespaces may not be read with Roles.
func TestRestart_RightThatWasNeverGranted(t *testing.T) {
	server := gatewayAPI(t)
	deny(server, "namespaces")
	source := func() *Source { return quick(t, server, Settings{Derive: &derive.Options{}}) }
	rig := start(t, server, source()).synced()
	rig.awaitVirtualServices(1)
	rig.Use(source())
	putRoute(server, "shop", "shop.example.com")
	rig.awaitVirtualServices(2)
	server.Delete(apiRoutes, "edge", "web")
	rig.awaitVirtualServices(1)
}

// TestRestart_CRDIsMissing: the objects made of it stay for the hold, and go then.
func TestRestart_CRDIsMissing(t *testing.T) {
	t.Run("derived", func(t *testing.T) {
		server := gatewayAPI(t)
		source := func(hold time.Duration) *Source {
			return quick(t, server, Settings{Derive: &derive.Options{}, Hold: hold})
		}
		rig := start(t, server, source(time.Hour)).synced()
		rig.awaitVirtualServices(1)
		rig.Use(startWithout(server, apiRoutes, source(time.Hour)))
		rig.Await("the new run has read", func() bool { return read(server, apiGateways) })
		put(server, 1, "a")
		rig.awaitServed("shop/a")
		rig.requireNoDeletion()
	})
	t.Run("derived, and the hold ends", func(t *testing.T) {
		server := gatewayAPI(t)
		source := func() *Source {
			return quick(t, server, Settings{Derive: &derive.Options{}, Hold: 300 * time.Millisecond})
		}
		r := start(t, server, source()).synced()
		r.awaitVirtualServices(1)
		r.Use(startWithout(server, apiRoutes, source()))
		r.awaitVirtualServices(0)
	})
	t.Run("exports", func(t *testing.T) {
		served := istio()
		served["services"], served[apiSlices] = "v1/Service", "discovery.k8s.io/v1/EndpointSlice"
		served[apiExports] = "multicluster.x-k8s.io/v1/ServiceExport"
		server := kubetest.Start(t, served)
		server.Put("services", "shop", "web", nil, object("spec: {ports: [{port: 80}]}"))
		server.Put(apiExports, "shop", "web", nil, nil)
		source := func() *Source {
			return quick(t, server, Settings{Hold: time.Hour, Services: &Services{Options: mapping.Options{Export: mapping.ExportServiceExports}}})
		}
		rig := start(t, server, source()).synced()
		rig.serves("ServiceEntry shop/web.shop.svc")
		rig.Use(startWithout(server, apiExports, source()))
		put(server, 1, "a")
		rig.awaitServed("shop/a")
		rig.requireNoDeletion()
	})
}

// startWithout takes a resource away, and returns s.
func startWithout(server *kubetest.Server, resource string, s *Source) *Source {
	server.Requests()
	server.Serve(resource, "")
	return s
}

// read reports whether a resource was asked for since the last call.
func read(server *kubetest.Server, resource string) bool {
	plural, _, _ := strings.Cut(resource, ".")
	return strings.Contains(strings.Join(server.Requests(), " "), "/"+plural+"?")
}

// TestRestart_HoldOfMissingKindGoesOn over a restart, though the CRD comes back in between, without the objects.
func TestRestart_HoldOfMissingKindGoesOn(t *testing.T) {
	server := istioServer(t)
	put(server, 1, "a")
	source := func() *Source { return quick(t, server, Settings{Hold: time.Hour}) }
	rig := start(t, server, source()).synced()
	rig.serves("ServiceEntry shop/a")
	server.Serve(entries, "")
	rig.AwaitState(sources.Degraded, "1 object is held until ")
	s := source()
	ready := make(chan struct{})
	s.cluster.url = served(t, server, ready)
	rig.Use(s)
	server.Serve(entries, istio()[entries])
	close(ready)
	server.Put(virtuals, "shop", "v", nil, virtual("a"))
	rig.awaitVirtualServices(1)
	rig.AwaitState(sources.Degraded, "1 object is held until ")
	rig.requireNoDeletion()
}

// served is a server in front of another that answers once it is ready.
func served(t *testing.T, server *kubetest.Server, ready chan struct{}) string {
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		select {
		case <-ready:
			server.ServeHTTP(w, request)
		case <-request.Context().Done():
		}
	}))
	t.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
	})
	return front.URL
}

// TestRestart_NodesMayNotBeRead: regions stay, though no Service needs nodes.
func TestRestart_NodesMayNotBeRead(t *testing.T) {
	objects := istio()
	objects["services"], objects["nodes"], objects[apiSlices] = "v1/Service", "v1/Node", "discovery.k8s.io/v1/EndpointSlice"
	server := kubetest.Start(t, objects)
	server.Put("services", "shop", "web", nil, object("spec: {ports: [{port: 80}]}"))
	server.Put("nodes", "", "n", object("labels: {topology.kubernetes.io/region: west}"), nil)
	server.Put(apiSlices, "shop", "web-1", object("labels: {kubernetes.io/service-name: web}"),
		object("{addressType: IPv4, ports: [{port: 8080}], endpoints: [{addresses: ['10.0.0.1'], nodeName: 'n'}]}"))
	source := func() *Source { return quick(t, server, Settings{Services: &Services{Nodes: true}}) }
	rig := start(t, server, source()).synced()
	rig.serves("ServiceEntry shop/web.shop.svc")
	west := func() bool {
		o := rig.table.Snapshot().Get(entryKey("shop", "web.shop.svc"))
		text, err := resource.MarshalYAML(o)
		require.NoError(t, err)
		return strings.Contains(string(text), "west")
	}
	require.True(t, west())
	deny(server, "nodes")
	rig.Use(source())
	put(server, 1, "a")
	rig.serves("ServiceEntry shop/a", "ServiceEntry shop/web.shop.svc")
	require.True(t, west())
}

// TestList_RepeatsFirstPage: something between that drops the token of the next page sends the first one again and again.
func TestList_RepeatsFirstPage(t *testing.T) {
	requested := 0
	server := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, req *http.Request) {
		if requested++; requested > 100 {
			response.WriteHeader(http.StatusTeapot)
			return
		}
		_ = json.NewEncoder(response).Encode(object("{kind: ServiceEntryList, metadata: {resourceVersion: '7', " +
			"continue: more}, items: [{metadata: {namespace: shop, name: a, resourceVersion: '5'}}]}"))
	}))
	defer server.Close()
	s := quick(t, istioServer(t), Settings{})
	r := newRun(s, nil)
	err := r.streams[0].list(t.Context(), &api{client: server.Client(), base: server.URL}, "/x")
	require.ErrorContains(t, err, "shop/a twice")
	require.LessOrEqual(t, requested, 2)
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
			if run.down == nil {
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
