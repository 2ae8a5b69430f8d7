package envoy

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/resource"
	"tributary/server/envoy/index"
	"tributary/server/envoy/model"
)

const workloads = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: shop, namespace: default}
spec:
  {hosts: [shop.internal], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, workloadSelector: {labels: {app: shop}}}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: other, namespace: default}
spec:
  {hosts: [other.internal], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, workloadSelector: {labels: {app: other}}}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: vm1, namespace: default}
spec: {address: 10.0.0.1, labels: {app: shop, version: v1}}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: vm2, namespace: default}
spec: {address: "fd00::2", labels: {app: shop, version: v2}}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: registered, namespace: default, annotations: {istio.io/autoRegistrationGroup: v1}}
spec: {address: 10.0.0.3, labels: {app: shop}}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: other, namespace: default}
spec: {address: 10.0.0.4, labels: {app: other}}
---
`

func workloadGroup(name, labels, probe string) string {
	return fmt.Sprintf(`---
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: %s, namespace: default, creationTimestamp: "2026-01-01T00:00:00Z"}
spec: {metadata: {labels: {%s}}, template: {}, probe: %s}
`, name, labels, probe)
}

// A group that comes, changes or goes touches the hosts of its workloads, and no others.
func TestWorkloadGroup_TouchesHostsOfItsWorkloads(t *testing.T) {
	mesh := index.NewMesh()
	for _, r := range decoded(t, workloads) {
		require.NoError(t, mesh.Set(r.Key(), r))
	}
	mesh.Touched()
	set := func(labels, probe string) map[string]bool {
		key := resource.Key{Kind: resource.WorkloadGroup, Namespace: "default", Name: "g"}
		var r *resource.Resource
		if labels != "" {
			r = decoded(t, workloadGroup("g", labels, probe))[0]
		}
		require.NoError(t, mesh.Set(key, r))
		return mesh.Touched()
	}
	const probe = "{tcpSocket: {port: 1}}"
	shop, otherHost := map[string]bool{"shop.internal": true}, map[string]bool{"other.internal": true}
	require.Empty(t, set("version: v3", probe))
	require.Equal(t, shop, set("version: v2", probe))
	require.Equal(t, shop, set("version: v2", "{tcpSocket: {port: 2}}"))
	require.Equal(t, map[string]bool{"shop.internal": true, "other.internal": true}, set("app: other", probe))
	require.Equal(t, otherHost, set("", ""))
	require.Empty(t, set("", ""))
}

// DNS records of hosts are sent to clients with DNS_CAPTURE. These clients share one listener, which changes only with
// the addresses; their other resources are those of clients without DNS_CAPTURE.
func TestDNSCapture_ListenerHasHostAddresses(t *testing.T) {
	const service = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: named, namespace: default}
spec: {hosts: [Named.internal], addresses: [240.0.0.1, 240.0.1.0/24], ports: [{number: 80, name: http, protocol: HTTP}], ` +
		`resolution: STATIC, endpoints: [{address: %s}]}
`
	s := newSteps(Options{}, decoded(t, shared+"---"+fmt.Sprintf(service, "10.0.0.1"))...)
	c := s.c
	plain := c.newScope(model.ProfileOf(node("a", "", "")))
	firstScope, two := c.newScope(model.ProfileOf(resolving(node("a", "", "")))), c.newScope(model.ProfileOf(resolving(node("b", "", ""))))
	for host, translation := range plain.translations {
		require.Same(t, translation, firstScope.translations[host], host)
		require.Same(t, translation, two.translations[host], host)
	}
	require.Nil(t, plain.listeners.Get("dns"))
	first := firstScope.listeners.Get("dns")
	require.Same(t, first, two.listeners.Get("dns"))
	require.Contains(t, string(first.Any), "named.internal")
	require.Contains(t, string(first.Any), "240.0.0.1")
	require.NotContains(t, string(first.Any), "240.0.1.0")
	require.Equal(t, map[resource.Key]bool{{Kind: resource.ServiceEntry, Namespace: "default", Name: "named"}: true},
		firstScope.objectsOf(firstScope.listeners, "dns"))
	s.change(t, fmt.Sprintf(service, "10.0.0.2"))
	require.Same(t, first, firstScope.listeners.Get("dns"))
	s.apply(nil, resource.Key{Kind: resource.ServiceEntry, Namespace: "default", Name: "named"})
	require.NotContains(t, string(firstScope.listeners.Get("dns").Any), "named.internal")
}
