package kube

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/sources"
)

// TestServiceAccounts has Pods that may not be read at first, and one Pod that is added after its endpoint.
func TestServiceAccounts(t *testing.T) {
	server := istioServer(t, "services", "pods", apiSlices)
	server.Put("services", "shop", "web", "spec: {ports: [{port: 80}]}")
	slice := func(kind, name string) {
		putSlice(server, "shop", "web-1", "targetRef: {kind: "+kind+", namespace: shop, name: "+name+"}")
	}
	pod := func(name, account string) {
		server.Put("pods", "shop", name, "spec: {nodeName: secret, serviceAccountName: "+account+"}")
	}
	slice("Pod", "web-x")
	pod("web-x", "reviews")
	deny(server, "pods")
	source := func() *Source { return quick(t, server, Settings{Services: &Services{ServiceAccounts: true}}) }
	rig := start(t, server, source()).synced()
	awaitAccount := func(account string) {
		t.Helper()
		rig.Await("the account "+account, func() bool {
			text := rig.text("shop", "web")
			_, after, _ := strings.Cut(text, "serviceAccount: ")
			served, _, _ := strings.Cut(after, "\n")
			return text != "" && served == account
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
	rig.awaitServed("shop/a")
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
