package kube

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/kube/kubetest"
)

// TestServiceAccounts has Pods that may not be read at first, and one Pod that is added after its endpoint.
func TestServiceAccounts(t *testing.T) {
	served := istio()
	served["services"], served["pods"], served[apiSlices] = "v1/Service", "v1/Pod", "discovery.k8s.io/v1/EndpointSlice"
	server := kubetest.Start(t, served)
	server.Put("services", "shop", "web", nil, object("spec: {ports: [{port: 80}]}"))
	slice := func(kind, name string) {
		server.Put(apiSlices, "shop", "web-1", object("labels: {kubernetes.io/service-name: web}"), map[string]any{
			"addressType": "IPv4", "ports": []any{object("port: 8080")}, "endpoints": []any{map[string]any{
				"addresses": []string{"10.0.0.1"}, "targetRef": map[string]any{"kind": kind, "namespace": "shop", "name": name},
			}},
		})
	}
	pod := func(name, account string) {
		server.Put("pods", "shop", name, nil, map[string]any{"spec": map[string]any{"serviceAccountName": account, "nodeName": "secret"}})
	}
	slice("Pod", "web-x")
	pod("web-x", "reviews")
	deny(server, "pods")
	source := func() *Source { return quick(t, server, Settings{Services: &Services{ServiceAccounts: true}}) }
	rig := start(t, server, source()).synced()
	awaitAccount := func(account string) {
		t.Helper()
		rig.Await("the account "+account, func() bool {
			o := rig.table.Snapshot().Get(entryKey("shop", "web.shop.svc"))
			if o == nil {
				return false
			}
			text, err := resource.MarshalYAML(o)
			require.NoError(t, err)
			_, after, _ := strings.Cut(string(text), "serviceAccount: ")
			condition, _, _ := strings.Cut(after, "\n")
			return condition == account
		})
	}
	awaitAccount("")
	rig.AwaitState(sources.Degraded, "no right to list and watch pods (403")
	allow(server, "pods")
	awaitAccount("reviews")
	slice("Pod", "web-y")
	awaitAccount("")
	pod("web-y", "ratings")
	awaitAccount("ratings")
	slice("Node", "web-y")
	awaitAccount("")
	slice("Pod", "web-y")
	awaitAccount("ratings")

	deny(server, "pods")
	rig.Use(source())
	rig.AwaitState(sources.Degraded, "no right to list and watch pods (403")
	put(server, 1, "a")
	rig.Await("the new run publishes", func() bool { return strings.Contains(strings.Join(rig.served(), " "), "shop/a") })
	awaitAccount("ratings")
}

// TestPod_DropsUnreadFields: Pods keep only the fields that the source reads.
func TestPod_DropsUnreadFields(t *testing.T) {
	server := istioServer(t)
	r := newRun(quick(t, server, Settings{Services: &Services{ServiceAccounts: true}}), nil)
	for _, k := range r.kinds {
		if k.plural == "pods" {
			text := k.trim([]byte(`{"metadata": {"name": "a"}, "spec": {"serviceAccountName": "b", "nodeName": "large"}}`))
			require.NotContains(t, string(text), "large")
			require.Contains(t, string(text), `"b"`)
			return
		}
	}
	require.Fail(t, "no Pods are read")
}
