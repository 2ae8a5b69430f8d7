package kube_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"tributary/sources/derive"
	"tributary/sources/kube"
	"tributary/sources/kube/mapping"
)

type (
	object = map[string]any
	list   = []any
)

// faults are what a resource may answer instead, and how much longer all takes then.
func faults(r *rand.Rand) (fault, time.Duration) {
	f := fault{chance: pick(r, 0.3, 0.7, 1)}
	switch r.IntN(11) {
	case 0:
		f.status = pick(r, http.StatusUnauthorized, http.StatusNotFound, http.StatusInternalServerError, http.StatusGatewayTimeout)
	case 1:
		f.status, f.wait = http.StatusTooManyRequests, 1+r.IntN(30)
		return f, 30 * time.Second
	case 2:
		f.status, f.text = pick(r, http.StatusOK, http.StatusBadGateway), pick(r,
			"upstream request timeout", "<html>", "{}", "null", `{"kind":"Status"}`)
	case 3, 4:
		f.cut = 1 + r.IntN(3000)
	case 5:
		f.expired = true
	case 6, 7:
		f.event = pick(r, http.StatusGone, http.StatusInternalServerError, http.StatusGatewayTimeout, http.StatusTooManyRequests)
	case 8:
		f.silent = true
		return f, 6 * time.Minute
	case 9:
		f.hang = true
		return f, 6 * time.Minute
	default:
		f.status, f.listsOnly = http.StatusServiceUnavailable, true
	}
	return f, 0
}

// draw draws the settings of a source.
func (h *history) draw() (s kube.Settings) {
	r := h.ops
	s.Hold = pick(r, time.Minute, 5*time.Minute)
	s.Namespaces = pick(r, nil, nil, []string{"shop"}, []string{"shop", "bank"})
	s.LabelSelector = pick(r, "", "", "mesh=yes", "mesh!=no")
	s.Revision = pick(r, "", "", "blue")
	s.Kinds = pick(r, nil, nil, []string{"VirtualService", "AuthorizationPolicy"}, []string{"VirtualService", "ServiceEntry"},
		[]string{kube.NoKinds})
	if r.IntN(3) > 0 {
		s.Services = &kube.Services{Nodes: r.IntN(2) == 0, Options: mapping.Options{
			Export:    pick(r, "", mapping.ExportAll, mapping.ExportServiceExports),
			Endpoints: pick(r, "", mapping.EndpointsPods, mapping.EndpointsNodePorts, mapping.EndpointsLoadBalancer),
		}}
	}
	if r.IntN(2) == 0 {
		s.Derive = &derive.Options{AllServices: r.IntN(2) == 0, GatewayClasses: pick(r, nil, []string{"istio", "ours"})}
	}
	if h.roles {
		s.Namespaces = pick(r, []string{"shop"}, []string{"shop", "bank"})
		if s.Services != nil {
			s.Services.Endpoints = pick(r, mapping.EndpointsPods, mapping.EndpointsLoadBalancer)
		}
	}
	return s
}

// deny has no rights but those of Roles, if there are those alone. mu is held.
func (h *history) deny() {
	for r, kind := range kindOf {
		if h.roles && slices.Contains(clusterScoped, kind) {
			h.denied[r] = true
		}
	}
}

// step does one thing to the cluster, the network or the source.
func (h *history) step() {
	r := h.ops
	switch n := r.IntN(60); {
	case n < 26:
		h.change()
	case n < 36:
		h.pass(time.Duration(r.IntN(20)) * time.Second)
	case n < 38:
		h.pass(time.Duration(r.IntN(8)) * time.Minute)
	case n < 46:
		h.locked(func() {
			resource := pick(r, append(slices.Clone(resources), "discovery")...)
			f, slack := faults(r)
			if resource == "discovery" && f.status == http.StatusNotFound {
				return // see hide
			}
			h.fault[resource], h.slack = f, max(h.slack, time.Minute+slack)
			h.say("%s: %+v", resource, f)
			if r.IntN(2) == 0 {
				h.endLocked()
			}
		})
	case n < 48:
		h.locked(func() {
			h.say("no faults")
			clear(h.fault)
		})
	case n < 50:
		h.locked(func() {
			resource := pick(r, resources...) + pick(r, "", "/shop", "/bank")
			h.denied[resource] = !h.denied[resource]
			h.deny()
			h.say("%s denied: %v", resource, h.denied[resource])
			if r.IntN(2) == 0 {
				h.endLocked()
			}
		})
	case n < 52:
		h.locked(func() {
			h.say("compact, or restart the API server")
			h.oldest = h.version
			h.endLocked()
		})
	case n == 52:
		h.away(func() {})
	case n == 53:
		h.goBack()
	case n == 54:
		h.lag()
	case n == 55:
		h.crd()
	case n == 56:
		h.hide()
	case n < 59:
		h.restart()
	default:
		h.rest()
	}
}

func (h *history) locked(do func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	do()
}

// holds notes that something may be held. mu is held.
func (h *history) holds() { h.slack, h.stale = 13*time.Minute, true }

// pass lets time go by, with a few changes.
func (h *history) pass(d time.Duration) {
	for range 3 {
		time.Sleep(d / 3)
		if h.ops.IntN(3) == 0 {
			h.change()
		}
	}
}

// away has the API server stopped for a while, at the end of which something happens.
func (h *history) away(then func()) {
	h.locked(func() {
		h.say("down")
		h.down = true
		h.endLocked()
	})
	time.Sleep(time.Duration(20+h.ops.IntN(100)) * time.Second)
	h.locked(func() {
		then()
		h.say("up")
		h.down = false
		h.oldest = h.version
		h.note()
	})
}

// goBack restores a snapshot of etcd. At rest, what it lost is held.
func (h *history) goBack() {
	quiet := h.ops.IntN(2) == 0
	if quiet {
		h.rest()
	}
	before := maps.Clone(h.now)
	h.away(func() {
		to := h.version - min(uint64(1+h.ops.IntN(40)), h.version-1000)
		h.say("restore v%d, quiet: %v", to, quiet)
		h.restore(to)
		for _, r := range resources {
			h.apis[r] = versionsOf(r)
		}
		h.note()
		h.lax = true
		h.holds()
		for name := range before {
			key, _, _ := strings.Cut(name, " ")
			kind, key, _ := strings.Cut(key, "/")
			for r, of := range rules {
				if of == kind && quiet && h.at(r, h.version)[key] == nil {
					h.held[name] = time.Now().Add(h.settings.Hold)
				}
			}
		}
	})
	if quiet {
		time.Sleep(h.settings.Hold)
		h.rest()
	}
}

// lag has lists of a resource be old, for a while that is shorter than the hold.
func (h *history) lag() {
	resource := pick(h.ops, resources...)
	h.locked(func() {
		h.fault[resource] = fault{chance: pick(h.ops, 0.5, 1), behind: uint64(1 + h.ops.IntN(10))}
		h.lax = true
		h.holds()
		h.say("%s: %+v", resource, h.fault[resource])
		h.endLocked()
	})
	h.pass(time.Duration(1+h.ops.IntN(40)) * time.Second)
	h.locked(func() { delete(h.fault, resource) })
}

// crd deletes a CRD with its objects, or makes it again, or changes the versions that are served.
func (h *history) crd() {
	resource := pick(h.ops, resources...)
	for !isCRD(resource) {
		resource = pick(h.ops, resources...)
	}
	h.locked(func() {
		switch versions := h.apis[resource]; {
		case len(versions) == 0:
			h.apis[resource] = versionsOf(resource)
		case len(versions) == 2 && h.ops.IntN(2) == 0:
			h.apis[resource] = []string{versions[1], versions[0]}
			if h.ops.IntN(2) == 0 {
				h.apis[resource] = []string{versions[1]}
			}
		default:
			for key := range h.at(resource, h.version) {
				namespace, name, _ := strings.Cut(key, "/")
				h.write(resource, namespace, name, nil)
			}
			h.apis[resource] = nil
		}
		h.note()
		h.holds()
		h.say("CRD of %s: %v", resource, h.apis[resource])
		h.endLocked()
	})
}

// hide has a CRD be missing for a while that is shorter than the hold, though nobody has deleted it.
func (h *history) hide() {
	resource := pick(h.ops, resources...)
	var versions []string
	h.locked(func() {
		if versions = h.apis[resource]; isCRD(resource) && len(versions) > 0 {
			h.hidden[resource] = true
			h.holds()
			h.say("%s is hidden", resource)
			h.endLocked()
		}
	})
	h.pass(h.settings.Hold * time.Duration(h.ops.IntN(90)) / 100)
	h.locked(func() {
		h.say("none is hidden")
		clear(h.hidden)
	})
}

// restart has another run of the source go on, with other settings or the same.
func (h *history) restart() {
	h.locked(func() {
		if h.say("stop"); h.stale {
			h.holds() // again, as a run does that finds out only now
		}
	})
	h.stop()
	for range h.ops.IntN(5) {
		h.change()
	}
	if h.ops.IntN(3) > 0 {
		h.say("start")
		h.run(h.settings)
		return
	}
	s := h.draw()
	h.say("start with %+v, services %+v, derive %+v", s, s.Services, s.Derive)
	h.run(s)
}

// change makes, changes or deletes an object.
func (h *history) change() {
	r := h.ops
	resource := pick(r, resources...)
	if r.IntN(3) == 0 {
		resource = pick(r, "services", "endpointslices.discovery.k8s.io", "httproutes.gateway.networking.k8s.io")
	}
	h.locked(func() {
		if len(h.apis[resource]) == 0 {
			return
		}
		namespace, name := pick(r, "shop", "shop", "bank", "other"), fmt.Sprint("o", r.IntN(4))
		switch kindOf[resource] {
		case "Namespace":
			namespace, name = "", namespace
		case "GatewayClass", "IngressClass":
			namespace, name = "", pick(r, "istio", "ours")
		case "Node":
			namespace = ""
		}
		if r.IntN(4) == 0 {
			h.say("delete %s %s/%s", resource, namespace, name)
			h.write(resource, namespace, name, nil)
		} else {
			o := content(r, kindOf[resource])
			h.write(resource, namespace, name, o)
			h.say("put %s %s/%s", resource, namespace, name)
		}
		h.note()
	})
}

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
		var all list
		for range r.IntN(4) {
			all = append(all, object{
				"addresses": list{fmt.Sprint("10.0.0.", r.IntN(6))}, "nodeName": fmt.Sprint("o", r.IntN(4)),
				"conditions": object{"ready": pick(r, nil, new(true), new(false)), "serving": r.IntN(2) == 0, "terminating": r.IntN(2) == 0},
			})
		}
		o["addressType"], o["endpoints"] = "IPv4", all
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
		var all list
		for i := range 1 + r.IntN(2) {
			from := pick(r, object{"from": "All"}, object{"from": "Same"},
				object{"from": "Selector", "selector": object{"matchLabels": object{"team": "a"}}})
			all = append(all, object{
				"name": fmt.Sprint("l", i), "port": 8080 + i, "protocol": "HTTP", "hostname": pick(r, "*.example.com", host()),
				"allowedRoutes": object{"namespaces": from},
			})
		}
		spec["gatewayClassName"], spec["listeners"] = pick(r, "istio", "istio", "ours"), all
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
