package relay

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A policy that targets a Gateway applies to the listeners of its ListenerSets, also if a Service selects the Envoys.
func TestGatewayPolicy_AppliesToListenerSets(t *testing.T) {
	t.Parallel()
	const objects = `
apiVersion: v1
kind: Service
metadata: {name: gw, namespace: shop}
spec: {selector: {a: b}, ports: [{name: http, port: 80}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: public, namespace: shop}
spec:
  gatewayClassName: istio
  addresses: [{type: Hostname, value: gw}]
  allowedListeners: {namespaces: {from: All}}
  listeners: [%s]
---
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {name: set, namespace: %s}
spec: {parentRef: {name: public, namespace: shop}, listeners: [{name: x, port: 80, protocol: HTTP}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: deny, namespace: shop}
spec: {action: DENY, rules: [{}], targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: public}]}
`
	for _, listeners := range []string{
		"{name: own, port: 81, protocol: HTTP}", "", "{name: udp, port: 82, protocol: UDP}",
	} {
		for _, namespace := range []string{"shop", "other"} {
			t.Run(namespace+" beside "+listeners, func(t *testing.T) {
				dir := t.TempDir()
				configureRules(t, dir, ", derive: {}")
				write(t, dir+"/rules/a.yaml", fmt.Sprintf(objects, listeners, namespace))
				rig := startReady(t, dir)
				resp, _ := rig.listeners(t, "", "router", "shop", `{"LABELS": {"a": "b"}}`)
				require.NotEmpty(t, resp.GetResources())
				for _, listener := range resp.GetResources() {
					require.Contains(t, spaceless(listener), "http.rbac.v3.RBAC]")
				}
			})
		}
	}
}
