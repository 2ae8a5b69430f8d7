package kube_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

type object = map[string]any

// content draws an object as YAML.
func content(r *rand.Rand, kind string) string {
	name, host := fmt.Sprint("o", r.IntN(4)), func() string { return fmt.Sprintf("h%d.example.com", r.IntN(4)) }
	namespace := func() string { return pick(r, "shop", "bank", "other") }
	labels, text := "", ""
	format := func(format string, values ...any) { text = fmt.Sprintf(format, values...) }
	switch kind {
	case "VirtualService", "ServiceEntry", "AuthorizationPolicy":
		labels = fmt.Sprintf("mesh: %q, istio.io/rev: %s", pick(r, "yes", "yes", "no"), pick(r, "blue", "green"))
		if r.IntN(2) == 0 {
			labels = "mesh: 'yes'"
		}
	case "EndpointSlice":
		labels = "kubernetes.io/service-name: " + name
	case "Node":
		labels = "topology.kubernetes.io/region: " + pick(r, "west", "east")
	case "Namespace":
		labels = "team: " + pick(r, "a", "b")
	}
	switch kind {
	case "VirtualService":
		format("spec: {hosts: [v%d.example], http: [{route: [{destination: {host: short}}]}]}", r.IntN(1000))
		if r.IntN(10) == 0 {
			text = "spec: {hosts: 7}"
		}
	case "ServiceEntry":
		format("spec: {hosts: [s%d.example], resolution: STATIC, ports: [{number: 80, name: http}]}", r.IntN(1000))
	case "AuthorizationPolicy":
		format("spec: {action: DENY, rules: [{to: [{operation: {paths: [/%d]}}]}]}", r.IntN(1000))
	case "Service":
		format("type: %s, externalName: %s, publishNotReadyAddresses: %t, "+
			"ports: [{name: http, port: %d, nodePort: %d, protocol: TCP}",
			pick(r, "ClusterIP", "ClusterIP", "NodePort", "LoadBalancer", "ExternalName"),
			pick(r, "db.example.com", "o1.shop.svc.cluster.local"), r.IntN(4) == 0, 80+r.IntN(3), 30000+r.IntN(3))
		if r.IntN(2) == 0 {
			text += ", {port: 53, name: dns, nodePort: 30010, protocol: " + pick(r, "UDP", "TCP") + "}"
		}
		format("spec: {%s]}, status: {loadBalancer: {ingress: [{ip: 192.0.2.%d}]}}", text, r.IntN(3))
	case "EndpointSlice":
		var endpoints []string
		for range r.IntN(4) {
			endpoints = append(endpoints, fmt.Sprintf("{addresses: [10.0.0.%d], nodeName: o%d, "+
				"conditions: {ready: %s, serving: %t, terminating: %t}}",
				r.IntN(6), r.IntN(4), pick(r, "null", "true", "false"), r.IntN(2) == 0, r.IntN(2) == 0))
		}
		format("addressType: IPv4, ports: [{name: http, port: 8080, protocol: TCP}, {name: dns, port: 53, protocol: UDP}], "+
			"endpoints: [%s]", strings.Join(endpoints, ", "))
	case "Node":
		format("status: {addresses: [{type: InternalIP, address: 172.16.0.%d}], "+
			"conditions: [{type: Ready, status: %q, lastHeartbeatTime: %d}]}",
			r.IntN(4), pick(r, "True", "True", "False"), r.IntN(1000))
	case "GatewayClass":
		format("spec: {controllerName: %s}", pick(r, "istio.io/gateway-controller", "example.com/other"))
	case "Gateway":
		var listeners []string
		for i := range 1 + r.IntN(2) {
			from := pick(r, "from: All", "from: Same", "from: Selector, selector: {matchLabels: {team: a}}")
			listeners = append(listeners, fmt.Sprintf("{name: l%d, port: %d, protocol: HTTP, hostname: %q, "+
				"allowedRoutes: {namespaces: {%s}}}",
				i, 8080+i, pick(r, "*.example.com", host()), from))
		}
		format("spec: {gatewayClassName: %s, listeners: [%s]}",
			pick(r, "istio", "istio", "ours"), strings.Join(listeners, ", "))
	case "HTTPRoute":
		parent := "name: " + name + ", namespace: " + namespace()
		if r.IntN(5) == 0 {
			parent += ", kind: Service, group: ''"
		} else if r.IntN(5) == 0 {
			parent += ", kind: ServiceEntry, group: networking.istio.io"
		}
		format("spec: {parentRefs: [{%s}], hostnames: [%s, %s], rules: [{matches: [{path: {type: PathPrefix, value: /%d}}], "+
			"backendRefs: [{name: o%d, namespace: %s, port: 80}]}]}", parent, host(), host(), r.IntN(3), r.IntN(4), namespace())
	case "ReferenceGrant":
		format("spec: {from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: %s}], "+
			"to: [{group: '', kind: Service}]}", namespace())
	case "Ingress":
		format("spec: {ingressClassName: %s, rules: [{host: %s, http: {paths: [{path: /, pathType: Prefix, "+
			"backend: {service: {name: %s, port: {number: 80}}}}]}}]}", pick(r, "istio", "other"), host(), name)
	case "IngressClass":
		format("spec: {controller: %s}", pick(r, "istio.io/ingress-controller", "example.com/other"))
	case "Namespace":
		text = "spec: {}"
	}
	return fmt.Sprintf("{metadata: {labels: {%s}}, %s}", labels, text)
}
