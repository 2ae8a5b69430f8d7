package envoy

import (
	"fmt"
	"log/slog"
	"maps"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/envoy/index"
	"tributary/server/envoy/model"
	"tributary/server/xds"
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

// checks returns the health checks of the cluster of a host, and how each endpoint is checked, by address.
func checks(t *testing.T, resources map[string]proto.Message, host string) (check string, endpoints map[string]string) {
	t.Helper()
	cluster := resources[xds.ClusterURL+"/outbound|80||"+host].(*clusterv3.Cluster)
	a := resources[xds.EndpointURL+"/"+xds.ChildOf(cluster)].(*endpointv3.ClusterLoadAssignment)
	endpoints = make(map[string]string)
	for _, l := range a.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			h := e.GetEndpoint().GetHealthCheckConfig()
			endpoints[e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress()] = map[bool]string{true: "off"}[h.GetDisableActiveHealthCheck()] +
				h.GetHostname()
			if h != nil && !h.GetDisableActiveHealthCheck() {
				require.NotZero(t, h.GetPortValue())
			}
		}
	}
	if len(cluster.GetHealthChecks()) > 0 {
		check = protojson.Format(cluster.GetHealthChecks()[0])
		require.Zero(t, cluster.GetCommonLbConfig().GetHealthyPanicThreshold().GetValue())
		require.NotNil(t, cluster.GetCommonLbConfig().GetHealthyPanicThreshold())
		require.True(t, cluster.GetIgnoreHealthOnHostRemoval())
	}
	return check, endpoints
}

// Envoys check the workloads of the group with the probe, and of groups that differ only in the port and the Host
// header.
func TestProbes(t *testing.T) {
	const probe = `{timeoutSeconds: 2, periodSeconds: 3, successThreshold: 4, failureThreshold: 5, initialDelaySeconds: 6, ` +
		`httpGet: {port: %d, path: ready, httpHeaders: [{name: X, value: "1%%"}, {name: host, value: "%s"}]}}`
	v1 := workloadGroup("v1", "version: v1, app: shop", fmt.Sprintf(probe, 8080, ""))
	v2 := workloadGroup("v2", "version: v2", fmt.Sprintf(probe, 8081, "vm.example"))
	check, endpoints := checks(t, dumpText(t, workloads+v1+v2, nodes[0]), "shop.internal")
	require.JSONEq(t, `{
		"timeout": "2s", "interval": "3s", "noTrafficInterval": "3s", "healthyThreshold": 4, "unhealthyThreshold": 5,
		"httpHealthCheck": {
			"path": "/ready", "requestHeadersToAdd": [{"header": {"key": "X", "value": "1%%"}}],
			"expectedStatuses": [{"start": "200", "end": "400"}],
			"retriableStatuses": [{"start": "100", "end": "200"}, {"start": "400", "end": "600"}]
		}
	}`, check)
	require.Equal(t, map[string]string{"10.0.0.1": "10.0.0.1:8080", "fd00::2": "vm.example", "10.0.0.3": "10.0.0.3:8080"}, endpoints)

	_, endpoints = checks(t, dumpText(t, workloads+v1, nodes[0]), "shop.internal")
	require.Equal(t, map[string]string{"10.0.0.1": "10.0.0.1:8080", "fd00::2": "off", "10.0.0.3": "10.0.0.3:8080"}, endpoints)
	_, endpoints = checks(t, dumpText(t, workloads+v1+workloadGroup("v0", "app: shop", "{tcpSocket: {port: 1}}"), nodes[0]), "shop.internal")
	require.Equal(t, map[string]string{"10.0.0.1": "off", "fd00::2": "[fd00::2]:1", "10.0.0.3": "off"}, endpoints,
		"the group of equal age and first name; of two for a workload, the one with more labels, or that has registered it")
	resources := dumpText(t, workloads+v1+v2, nodes[0])
	check, endpoints = checks(t, resources, "other.internal")
	require.Empty(t, check)
	require.Equal(t, map[string]string{"10.0.0.4": ""}, endpoints)
	require.True(t, maps.EqualFunc(dumpText(t, workloads, nodes[3]), dumpText(t, workloads+v1+v2, nodes[3]),
		func(a, b proto.Message) bool { return proto.Equal(a, b) }), "gRPC clients have no health checks")
}

// Findings name probes without an equivalent health check of Envoy; such workloads have no health check.
func TestProbesWithoutCheck(t *testing.T) {
	for probe, want := range map[string][2]string{
		`{exec: {command: [ls]}}`:                                          {".exec", "clients run no commands"},
		`{httpGet: {port: 1, host: 127.0.0.1}}`:                            {".httpGet.host", "clients probe the address"},
		`{tcpSocket: {port: 1, host: localhost}}`:                          {".tcpSocket.host", "clients probe the address"},
		`{grpc: {port: 1}}`:                                                {".grpc", "default/shop has a port that does not speak HTTP/2"},
		`{tcpSocket: {port: 70000}}`:                                       {".tcpSocket.port", "it is no port"},
		`{periodSeconds: -1, tcpSocket: {port: 1}}`:                        {".tcpSocket", "Envoy would refuse it"},
		`{httpGet: {port: 1, path: "/a\nb"}}`:                              {".httpGet", "Envoy would refuse it"},
		`{httpGet: {port: 1, httpHeaders: [{name: Host, value: "a\nb"}]}}`: {".httpGet", "Envoy would refuse it"},
		`{httpGet: {port: 1, httpHeaders: [{name: ":path"}]}}`:             {".httpGet.httpHeaders", "Envoy sets :path itself"},
		`{}`: {"", "there is nothing to ask"},
	} {
		c := catalogOf(t, workloads+workloadGroup("v1", "version: v1", probe))
		check, endpoints := checks(t, dump(t, c, nodes[0]), "shop.internal")
		require.Empty(t, check, probe)
		require.Empty(t, endpoints["10.0.0.1"], probe)
		key := resource.Key{Kind: resource.WorkloadGroup, Namespace: "default", Name: "v1"}
		require.Contains(t, fmt.Sprint(c.WithoutEffect(c.last.Get(key))), "spec.probe"+want[0]+" has no effect on Envoys: "+want[1], probe)
	}
	c := catalogOf(t, workloads+workloadGroup("a", "version: v1", "{tcpSocket: {port: 1}}")+
		workloadGroup("b", "version: v2", "{grpc: {port: 1}}")+
		workloadGroup("c", "version: v2, app: shop", "{periodSeconds: 9, tcpSocket: {port: 1}}"))
	dump(t, c, nodes[0])
	group := func(name string) *resource.Resource {
		return c.last.Get(resource.Key{Kind: resource.WorkloadGroup, Namespace: "default", Name: name})
	}
	require.Contains(t, fmt.Sprint(c.WithoutEffect(group("c"))), "default/shop is checked as WorkloadGroup default/a says")
	c = catalogOf(t, workloads+workloadGroup("a", "version: v1", "{httpGet: {port: 1, scheme: HTTPS}}")+`---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: mutual, namespace: default}
spec: {host: shop.internal, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: original, namespace: default}
spec: {host: other.internal, trafficPolicy: {loadBalancer: {simple: PASSTHROUGH}}}
`+workloadGroup("b", "app: other", "{tcpSocket: {port: 1}}"))
	dump(t, c, nodes[0])
	require.Contains(t, fmt.Sprint(c.WithoutEffect(group("a"))), "default/shop is reached by mutual TLS")
	require.Contains(t, fmt.Sprint(c.WithoutEffect(group("b"))), "go to their original address, unchecked")
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
	var table memstore.Table
	table.Apply(decoded(t, shared+"---"+fmt.Sprintf(service, "10.0.0.1")), nil)
	c := New(&table, Options{Log: slog.New(slog.DiscardHandler)})
	c.update(nil, table.Snapshot(), false, true)
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
	change := func(puts []*resource.Resource, deletes ...resource.Key) {
		revision := table.Snapshot().Revision()
		table.Apply(puts, deletes)
		keys, snap, ok := table.Changes(revision)
		c.update(keys, snap, ok, true)
	}
	change(decoded(t, fmt.Sprintf(service, "10.0.0.2")))
	require.Same(t, first, firstScope.listeners.Get("dns"))
	change(nil, resource.Key{Kind: resource.ServiceEntry, Namespace: "default", Name: "named"})
	require.NotContains(t, string(firstScope.listeners.Get("dns").Any), "named.internal")
}
