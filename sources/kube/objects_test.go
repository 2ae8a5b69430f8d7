package kube_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
)

type (
	object = map[string]any
	list   = []any
)

// content draws an object.
func content(r *rand.Rand, kind string) object {
	name, host := fmt.Sprint("o", r.IntN(4)), func() string { return fmt.Sprintf("h%d.example.com", r.IntN(4)) }
	namespace := func() string { return pick(r, "shop", "bank", "other") }
	meta, spec := object{}, object{}
	o := object{"metadata": meta, "spec": spec}
	if slices.Contains(slices.Collect(maps.Values(rules)), kind) {
		meta["labels"] = map[string]string{"mesh": pick(r, "yes", "yes", "no"), "istio.io/rev": pick(r, "blue", "green")}
		if r.IntN(2) == 0 {
			meta["labels"] = map[string]string{"mesh": "yes"}
		}
	}
	switch kind {
	case "VirtualService":
		spec["hosts"] = list{fmt.Sprintf("v%d.example", r.IntN(1000))}
		spec["http"] = list{object{"route": list{object{"destination": object{"host": "short"}}}}}
		if r.IntN(10) == 0 {
			spec["hosts"] = 7
		}
	case "ServiceEntry":
		spec["hosts"], spec["resolution"] = list{fmt.Sprintf("s%d.example", r.IntN(1000))}, "STATIC"
		spec["ports"] = list{object{"number": 80, "name": "http"}}
	case "AuthorizationPolicy":
		spec["action"] = "DENY"
		spec["rules"] = list{object{"to": list{object{"operation": object{"paths": list{fmt.Sprint("/", r.IntN(1000))}}}}}}
	case "Service":
		spec["type"] = pick(r, "ClusterIP", "ClusterIP", "NodePort", "LoadBalancer", "ExternalName")
		spec["externalName"], spec["publishNotReadyAddresses"] = pick(r, "db.example.com", "o1.shop.svc.cluster.local"), r.IntN(4) == 0
		ports := list{object{"port": 80 + r.IntN(3), "name": "http", "nodePort": 30000 + r.IntN(3), "protocol": "TCP"}}
		if r.IntN(2) == 0 {
			ports = append(ports, object{"port": 53, "name": "dns", "nodePort": 30010, "protocol": pick(r, "UDP", "TCP")})
		}
		spec["ports"], o["status"] = ports, object{"loadBalancer": object{"ingress": list{object{"ip": fmt.Sprint("192.0.2.", r.IntN(3))}}}}
	case "EndpointSlice":
		meta["labels"] = map[string]string{"kubernetes.io/service-name": name}
		var objects list
		for range r.IntN(4) {
			objects = append(objects, object{
				"addresses": list{fmt.Sprint("10.0.0.", r.IntN(6))}, "nodeName": fmt.Sprint("o", r.IntN(4)),
				"conditions": object{"ready": pick(r, nil, new(true), new(false)), "serving": r.IntN(2) == 0, "terminating": r.IntN(2) == 0},
			})
		}
		o["addressType"], o["endpoints"] = "IPv4", objects
		o["ports"] = list{object{"name": "http", "port": 8080, "protocol": "TCP"}, object{"name": "dns", "port": 53, "protocol": "UDP"}}
		delete(o, "spec")
	case "Node":
		meta["labels"] = map[string]string{"topology.kubernetes.io/region": pick(r, "west", "east")}
		o["status"] = object{
			"addresses":  list{object{"type": "InternalIP", "address": fmt.Sprint("172.16.0.", r.IntN(4))}},
			"conditions": list{object{"type": "Ready", "status": pick(r, "True", "True", "False"), "lastHeartbeatTime": r.IntN(1000)}},
		}
	case "Namespace":
		meta["labels"] = map[string]string{"team": pick(r, "a", "b")}
	case "GatewayClass":
		spec["controllerName"] = pick(r, "istio.io/gateway-controller", "example.com/other")
	case "Gateway":
		var objects list
		for i := range 1 + r.IntN(2) {
			from := pick(r, object{"from": "All"}, object{"from": "Same"},
				object{"from": "Selector", "selector": object{"matchLabels": object{"team": "a"}}})
			objects = append(objects, object{
				"name": fmt.Sprint("l", i), "port": 8080 + i, "protocol": "HTTP", "hostname": pick(r, "*.example.com", host()),
				"allowedRoutes": object{"namespaces": from},
			})
		}
		spec["gatewayClassName"], spec["listeners"] = pick(r, "istio", "istio", "ours"), objects
	case "HTTPRoute":
		parent := object{"name": name, "namespace": namespace()}
		if r.IntN(5) == 0 {
			parent["kind"], parent["group"] = "Service", ""
		} else if r.IntN(5) == 0 {
			parent["kind"], parent["group"] = "ServiceEntry", "networking.istio.io"
		}
		spec["parentRefs"], spec["hostnames"] = list{parent}, list{host(), host()}
		spec["rules"] = list{object{
			"matches":     list{object{"path": object{"type": "PathPrefix", "value": fmt.Sprint("/", r.IntN(3))}}},
			"backendRefs": list{object{"name": fmt.Sprint("o", r.IntN(4)), "namespace": namespace(), "port": 80}},
		}}
	case "ReferenceGrant":
		spec["from"] = list{object{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": namespace()}}
		spec["to"] = list{object{"group": "", "kind": "Service"}}
	case "Ingress":
		spec["ingressClassName"] = pick(r, "istio", "other")
		spec["rules"] = list{object{"host": host(), "http": object{"paths": list{object{
			"path": "/", "pathType": "Prefix", "backend": object{"service": object{"name": name, "port": object{"number": 80}}},
		}}}}}
	case "IngressClass":
		spec["controller"] = pick(r, "istio.io/ingress-controller", "example.com/other")
	}
	return o
}
