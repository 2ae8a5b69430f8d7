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
	"tributary/sources/kube/kubetest"
	"tributary/sources/kube/mapping"
)

// faults are wrong answers of a resource, and the longest delays that they cause.
func faults(r *rand.Rand) (kubetest.Fault, time.Duration) {
	f := kubetest.Fault{Chance: pick(r, 0.3, 0.7, 1)}
	switch r.IntN(15) {
	case 0:
		f.Status = pick(r, http.StatusUnauthorized, http.StatusNotFound, http.StatusInternalServerError,
			http.StatusGatewayTimeout)
	case 1:
		f.Status, f.RetryAfter = http.StatusTooManyRequests, 1+r.IntN(30)
		return f, 30 * time.Second
	case 2:
		f.Status, f.Text = pick(r, http.StatusOK, http.StatusBadGateway), pick(r,
			"upstream request timeout", "<html>", "{}", "null", `{"kind":"Status"}`)
	case 3, 4:
		f.Truncate = 1 + r.IntN(3000)
	case 5:
		f.Expired = true
	case 6, 7:
		f.Event = pick(r, http.StatusGone, http.StatusInternalServerError, http.StatusGatewayTimeout,
			http.StatusTooManyRequests)
	case 8:
		f.Silent = true
		return f, 6 * time.Minute
	case 9:
		f.Hang = true
		return f, 6 * time.Minute
	case 10:
		f.Repeats = true
	case 11:
		f.Disorder = true
		return f, 12 * time.Minute // as after a restore
	case 12:
		f.Backwards = true
	case 13:
		f.Nameless = true
	default:
		f.Status, f.ListsOnly = http.StatusServiceUnavailable, true
	}
	return f, 0
}

// draw draws the settings of a source.
func (h *history) draw() (s kube.Settings) {
	r := h.ops
	s.Hold = pick(r, time.Minute, 5*time.Minute)
	s.Namespaces = pick(r, nil, nil, []string{"shop"}, []string{"shop", "bank"})
	s.LabelSelector = pick(r, "", "", "mesh=yes", "mesh!=no")
	s.DomainSuffix = pick(r, "", "", "east.local")
	s.Revision = pick(r, "", "", "blue")
	s.Kinds = pick(r, nil, nil, []string{"VirtualService", "AuthorizationPolicy"}, []string{"VirtualService", "ServiceEntry"},
		[]string{kube.NoKinds})
	if r.IntN(3) > 0 {
		s.Services = &kube.Services{Nodes: r.IntN(2) == 0, Options: mapping.Options{
			Export:       pick(r, "", mapping.ExportAll, mapping.ExportServiceExports),
			Endpoints:    pick(r, "", mapping.EndpointsPods, mapping.EndpointsNodePorts, mapping.EndpointsLoadBalancer),
			HostTemplate: pick(r, "", "{service}.{namespace}.east"), Region: pick(r, "", "north"),
		}}
	}
	if r.IntN(2) == 0 {
		s.Derive = &derive.Options{
			AllServices: r.IntN(2) == 0, GatewayClasses: pick(r, nil, []string{"istio", "ours"}), DomainSuffix: pick(r, "", "east.local"),
		}
	}
	if h.roles {
		s.Namespaces = pick(r, []string{"shop"}, []string{"shop", "bank"})
		if s.Services != nil {
			s.Services.Endpoints = pick(r, mapping.EndpointsPods, mapping.EndpointsLoadBalancer)
		}
	}
	return s
}

// endFaults ends all faults, and gives back the rights. mu is held.
func (h *history) endFaults() {
	h.Down(false)
	h.Heal()
	h.Allow()
	h.deny()
}

// deny has no rights but those of Roles, if there are those alone. mu is held.
func (h *history) deny() {
	for _, r := range resources {
		if h.roles && slices.Contains(clusterScoped, kubetest.KindOf(r)) {
			h.Deny(r)
		}
	}
}

// step does one thing to the cluster, the network or the source.
func (h *history) step() {
	r := h.ops
	switch n := r.IntN(70); {
	case n < 26:
		h.change()
	case n < 36:
		h.pass(time.Duration(r.IntN(20)) * time.Second)
	case n < 38:
		h.pass(time.Duration(r.IntN(8)) * time.Minute)
	case n < 46:
		h.locked(func() {
			resource := pick(r, append(slices.Clone(resources), kubetest.Discovery, kubetest.Everything)...)
			fault, slack := faults(r)
			if resource == kubetest.Discovery && fault.Status == http.StatusNotFound {
				return // see hide
			}
			h.Fault(resource, fault)
			h.slack = max(h.slack, time.Minute+slack)
			h.say("%s: %+v", resource, fault)
			if r.IntN(2) == 0 {
				h.Disconnect()
			}
		})
	case n < 48:
		h.locked(func() {
			h.say("no faults")
			h.Heal()
		})
	case n < 50:
		h.locked(func() {
			resource := pick(r, pick(r, resources...)+pick(r, "", "/shop", "/bank"), pick(r, resources...), kubetest.Discovery)
			if h.Denies(resource) {
				h.Allow(resource)
			} else {
				h.Deny(resource)
			}
			h.deny()
			h.say("%s denied: %v", resource, h.Denies(resource))
			if r.IntN(2) == 0 {
				h.Disconnect()
			}
		})
	case n < 52:
		h.locked(func() {
			h.say("compact, or restart the API server")
			h.Compact()
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
	case n == 59:
		h.move()
	case n == 60:
		h.empty()
	case n == 61:
		h.crash()
	case n == 62:
		h.begin()
	case n == 63:
		h.quickly()
	case n < 66:
		h.inHold()
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

// away stops the API server for a while. Before the server returns, it calls then.
func (h *history) away(meanwhile func()) {
	h.locked(func() {
		h.say("down")
		h.Down(true)
	})
	time.Sleep(time.Duration(20+h.ops.IntN(100)) * time.Second)
	h.locked(func() {
		meanwhile()
		h.say("up")
		h.Down(false)
		h.Compact()
		h.note()
	})
}

// goBack restores a snapshot of etcd. At rest, lost objects are held.
func (h *history) goBack() {
	quiet := h.ops.IntN(2) == 0
	if quiet {
		h.rest()
	}
	before := maps.Clone(h.now)
	h.away(func() {
		h.restore(40, fmt.Sprintf(", quiet: %v", quiet))
		for name := range before {
			key, _, _ := strings.Cut(name, " ")
			kind, key, _ := strings.Cut(key, "/")
			for r, resource := range rules {
				if resource == kind && quiet && h.Objects(r)[key] == nil {
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

// begin restarts the API server: for a moment, it does not list its CRDs. No hold begins for that.
func (h *history) begin() {
	h.locked(func() {
		h.Hide(crds...)
		h.say("the API server starts")
		h.Disconnect()
	})
	time.Sleep(time.Duration(h.ops.IntN(9000)) * time.Millisecond)
	if h.ops.IntN(3) == 0 {
		h.say("another run starts with it")
		h.stop()
		h.run(h.settings)
	}
	h.locked(func() {
		h.Hide()
		h.slack = max(h.slack, time.Minute+15*time.Second)
	})
}

// restore restores a version that was some changes ago. mu is held.
func (h *history) restore(most int, how string) {
	to := h.Version() - min(1+h.ops.IntN(most), h.Version()-1000)
	h.say("restore v%d%s", to, how)
	h.Restore(to)
	for _, r := range resources {
		h.Serve(r)
	}
	h.note()
	h.lax = true
	h.holds()
}

// quickly restores a snapshot of etcd, and is soon ahead of it.
func (h *history) quickly() {
	h.locked(func() { h.restore(20, " quickly") })
	for range h.ops.IntN(30) {
		h.change()
	}
}

// inHold begins a hold, and restarts the source during it. Listed objects that depend on no object in doubt follow the
// cluster.
func (h *history) inHold() {
	h.locked(h.endFaults)
	restores, stale := h.ops.IntN(2) == 0, h.stale
	if restores {
		h.quickly()
	} else {
		h.crd()
	}
	early := h.ops.IntN(2) == 0 // the next run finds out
	if !early {
		time.Sleep(30 * time.Second)
	}
	h.say("another run starts during the hold")
	h.stop()
	h.run(h.settings)
	for range 5 {
		h.change()
	}
	var lacks []string
	for began := time.Now(); ; time.Sleep(time.Second) {
		if lacks = h.follows(!restores && !stale); len(lacks) == 0 || time.Since(began) > time.Minute {
			break
		}
	}
	if len(lacks) > 0 {
		h.fail("not followed during a hold: %s", strings.Join(lacks, "\n"))
	}
}

// follows says which rules and, if no EndpointSlice can be in doubt, Services that the cluster has are not published.
func (h *history) follows(services bool) (lacks []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	published := h.out.all()
	for name, text := range h.now {
		group, _, _ := strings.Cut(name, " ")
		kind, _, _ := strings.Cut(group, "/")
		_, exists := published[name]
		if isRule := slices.Contains(slices.Collect(maps.Values(rules)), kind); isRule && published[name] != text ||
			services && kind == "Service" && !exists {
			lacks = append(lacks, fmt.Sprintf("%s is %q, want %q", name, published[name], text))
		}
	}
	return lacks
}

// lag has lists of a resource be old, for a while that is shorter than the hold.
func (h *history) lag() {
	resource := pick(h.ops, append(slices.Clone(resources), kubetest.Everything)...)
	h.locked(func() {
		fault := kubetest.Fault{Chance: pick(h.ops, 0.5, 1), Behind: 1 + h.ops.IntN(10)}
		h.Fault(resource, fault)
		h.lax = true
		h.holds()
		h.say("%s: %+v", resource, fault)
		h.Disconnect()
	})
	h.pass(time.Duration(1+h.ops.IntN(40)) * time.Second)
	h.Fault(resource, kubetest.Fault{})
}

// crd deletes a CRD with its objects, or makes it again, or changes the versions that are served.
func (h *history) crd() {
	resource := pick(h.ops, resources...)
	for !kubetest.IsCRD(resource) {
		resource = pick(h.ops, resources...)
	}
	h.locked(func() {
		switch versions := h.Versions(resource); {
		case len(versions) == 0:
			h.Serve(resource)
		case len(versions) == 2 && h.ops.IntN(2) == 0:
			if h.Serve(resource, versions[1], versions[0]); h.ops.IntN(2) == 0 {
				h.Serve(resource, versions[1])
			}
		default:
			h.Remove(resource)
		}
		h.note()
		h.holds()
		h.say("CRD of %s: %v", resource, h.Versions(resource))
		h.Disconnect()
	})
}

// hide makes a CRD missing, or not listed, for a time that is shorter than the hold, without a deletion.
func (h *history) hide() {
	resource := pick(h.ops, resources...)
	h.locked(func() {
		if kubetest.IsCRD(resource) && len(h.Versions(resource)) > 0 {
			hides := h.ops.IntN(2) == 0
			if hides {
				h.Hide(resource)
			} else {
				h.Unlist(resource)
			}
			h.holds()
			h.say("%s is hidden: %v", resource, hides)
			h.Disconnect()
		}
	})
	h.pass(h.settings.Hold * time.Duration(h.ops.IntN(90)) / 100)
	h.locked(func() {
		h.say("none is hidden")
		h.Hide()
		h.Unlist()
	})
}

// move gives the cluster another address, which the kubeconfig says a while later.
func (h *history) move() {
	h.locked(func() {
		h.say("another address")
		h.Move()
	})
	h.pass(time.Duration(h.ops.IntN(4)) * time.Minute)
	h.writeKubeconfig()
}

// empty deletes all that is in a namespace.
func (h *history) empty() {
	namespace := pick(h.ops, "shop", "bank", "other")
	h.locked(func() {
		h.say("delete namespace %s", namespace)
		for _, r := range resources {
			for _, key := range slices.Sorted(maps.Keys(h.Objects(r))) {
				if name, entry := strings.CutPrefix(key, namespace+"/"); entry {
					h.Delete(r, namespace, name)
					h.note()
				}
			}
		}
	})
}

// crash restores the stored state of an earlier moment for the next run, and corrects the clock, which was wrong until
// then.
func (h *history) crash() {
	h.stop()
	h.locked(func() {
		h.say("crash")
		h.out.rewind(h.ops.IntN(4))
		clear(h.held)
		h.lax = true
		if h.stale {
			h.holds()
		}
	})
	h.run(h.settings)
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
	if h.ops.IntN(6) == 0 {
		h.locked(func() { h.restore(40, "") })
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

// put puts an object with drawn content. mu is held.
func (h *history) put(resource, namespace, name string) {
	h.Put(resource, namespace, name, content(h.ops, kubetest.KindOf(resource)))
}

// write puts an object, and notes the expected objects.
func (h *history) write(resource, namespace, name string) {
	h.locked(func() {
		h.put(resource, namespace, name)
		h.note()
	})
}

// change makes, changes or deletes an object.
func (h *history) change() {
	random := h.ops
	resource := pick(random, resources...)
	if random.IntN(3) == 0 {
		resource = pick(random, "services", slicesAPI, routes)
	}
	h.locked(func() {
		if len(h.Versions(resource)) == 0 {
			return
		}
		namespace, name := pick(random, "shop", "shop", "bank", "other"), fmt.Sprint("o", random.IntN(4))
		switch kubetest.KindOf(resource) {
		case "Namespace":
			namespace, name = "", namespace
		case "GatewayClass", "IngressClass":
			namespace, name = "", pick(random, "istio", "ours")
		case "Node":
			namespace = ""
		}
		if random.IntN(4) == 0 {
			h.say("delete %s %s/%s", resource, namespace, name)
			h.Delete(resource, namespace, name)
		} else {
			h.put(resource, namespace, name)
			h.say("put %s %s/%s", resource, namespace, name)
		}
		h.note()
	})
}
