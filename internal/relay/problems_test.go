package relay

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"

	"tributary/adsc"
	"tributary/server/admin"
)

func virtualService(name, destination string) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: %s, namespace: shop}
spec: {hosts: [%[1]s.example], http: [{route: [{destination: %s}]}]}
---
`, name, destination)
}

// awaitProblems waits until exactly the wanted texts are part of the troubles, in order.
func (r *rig) awaitProblems(t *testing.T, wanted ...string) {
	t.Helper()
	eventually(t, func() error {
		status := r.admin.Status()
		troubles := status.Troubles()
		if !slices.EqualFunc(troubles, wanted, func(trouble admin.Trouble, text string) bool {
			return strings.Contains(trouble.Text, text)
		}) {
			return fmt.Errorf("%+v", troubles)
		}
		return nil
	})
}

// connectEnvoy connects a client of Envoy's clusters until the returned function is called.
func connectEnvoy(t *testing.T, r *rig, metadata *corev3.Node) (disconnect func()) {
	t.Helper()
	client, err := adsc.New(adsc.Config{
		Addresses: []string{r.XDS().String()}, Mode: adsc.Delta, Log: slog.New(slog.DiscardHandler), Node: metadata,
		Subscriptions: []adsc.Subscription{{
			TypeURL: "type.googleapis.com/envoy.config.cluster.v3.Cluster",
			Handler: func(context.Context, *adsc.Response) error { return nil },
		}},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = client.Run(ctx) })
	disconnect = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(disconnect)
	return disconnect
}

// TestProblems_Unresolved checks that status follows references, whether clients are connected or not. A source that was
// never read makes them unknown.
func TestProblems_Unresolved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir+"/rules/a.yaml", entry("shop", "b", 80)+virtualService("host", "{host: gone.example}")+
		virtualService("subset", "{host: b.example, subset: v9}")+virtualService("right", "{host: b.example}"))
	configured(t, dir, "name: rules, address: 'fs://./rules'")
	r := startReady(t, dir)
	r.awaitProblems(t, "VirtualService shop/host (rules: ", "VirtualService shop/subset (rules: ")

	fill(t, dir, "rules/b.yaml: shop/gone")
	r.awaitProblems(t, "VirtualService shop/subset (rules: ")

	write(t, dir+"/rules/a.yaml", entry("shop", "b", 80)+virtualService("short", "{host: reviews}"))
	r.awaitProblems(t) // an istiod may know the host
	disconnect := connectEnvoy(t, r, &corev3.Node{Id: "sidecar~10.0.0.1~a.shop~shop.svc.cluster.local"})
	r.awaitProblems(t, "VirtualService shop/short (rules: ") // an Envoy does not
	disconnect()
	r.awaitProblems(t)

	write(t, dir+"/rules/a.yaml", entry("shop", "b", 80)+virtualService("host", "{host: lost.example}"))
	r.awaitProblems(t, "VirtualService shop/host (rules: ")
	r.reload(t, "name: rules, address: 'fs://./rules'", "name: dc1, address: 'consul://"+down(t)+"'")
	r.awaitProblems(t, "source dc1 is unreachable", "1 reference cannot be checked, since a source was never read: lost.example")
}

// TestProblems_Unserved checks that status names the parts of the Gateway API that are not served.
func TestProblems_Unserved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	route := func(name, parent string) string {
		return fmt.Sprintf(`apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: %s, namespace: shop}
spec: {parentRefs: [{%s}], rules: [{backendRefs: [{name: b, port: 80}]}]}
---
`, name, parent)
	}
	gateway := func(class string) string {
		return fmt.Sprintf(`apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec: {gatewayClassName: %s, listeners: [{name: http, port: 80, protocol: HTTP, hostname: "*.example"}]}
---
`, class)
	}
	routes := route("right", "name: edge") + route("gateway", "name: gone") + route("listener", "name: edge, sectionName: gone") +
		route("port", "name: edge, port: 81") + route("foreign", "group: other.example, kind: Gate, name: edge")
	for i := range 8 { // without which the guard holds the others
		write(t, fmt.Sprintf("%s/rules/%d.yaml", dir, i), entry("shop", fmt.Sprintf("b%d", i), 80))
	}
	write(t, dir+"/rules/a.yaml", gateway("istio")+routes)
	configured(t, dir, "name: rules, address: 'fs://./rules', derive: {}")
	r := startReady(t, dir)
	r.awaitProblems(t, "HTTPRoute shop/gateway (rules: ", "HTTPRoute shop/listener (rules: ", "HTTPRoute shop/port (rules: ")
	write(t, dir+"/rules/a.yaml", gateway("other")+route("right", "name: edge"))
	r.awaitProblems(t) // a Gateway of another class
	extended := strings.Replace(route("extended", "name: edge"), "[{backendRefs:",
		"[{filters: [{type: ExtensionRef, extensionRef: {group: other.example, kind: Filter, name: f}}], backendRefs:", 1)
	write(t, dir+"/rules/a.yaml", strings.Replace(gateway("istio"), "protocol: HTTP,", "protocol: UDP,", 1)+
		strings.ReplaceAll(gateway("istio"), "edge", "other")+strings.Replace(extended, "edge", "other", 1))
	r.awaitProblems(t, "Gateway shop/edge (rules: ", "HTTPRoute shop/extended (rules: ")
	write(t, dir+"/rules/a.yaml", route("right", "name: edge"))
	r.awaitProblems(t, "HTTPRoute shop/right (rules: ")
}

// TestProblems_Refused checks that objects beyond limits.productBytes are problems, before and after the first Envoy.
func TestProblems_Refused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	configured(t, dir, "name: rules, address: 'fs://./rules'")
	var text strings.Builder
	for object := range 3 {
		var hosts, ports []string
		for i := range 10 {
			hosts = append(hosts, fmt.Sprintf("h%d-%d.example", object, i))
			ports = append(ports, fmt.Sprintf("{number: %d, name: p%[1]d, protocol: HTTP}", 8000+i))
		}
		fmt.Fprintf(&text, `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: large%d, namespace: shop}
spec: {hosts: [%s], ports: [%s], resolution: DNS}
---
`, object, strings.Join(hosts, ", "), strings.Join(ports, ", "))
	}
	write(t, dir+"/rules/a.yaml", text.String())
	write(t, dir+"/tributary.yaml", mustRead(t, dir+"/tributary.yaml")+"limits: {productBytes: 2500000}\n")
	rig := startReady(t, dir)
	rig.awaitProblems(t, "ServiceEntry shop/large2 (rules: ")
	defer connectEnvoy(t, rig, &corev3.Node{Id: "sidecar~10.0.0.1~a.shop~shop.svc.cluster.local"})()
	await(t, func() bool { return len(rig.admin.Status().Clients) != 0 })
	rig.awaitProblems(t, "ServiceEntry shop/large2 (rules: ")
}
