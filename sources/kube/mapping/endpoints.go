package mapping

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/internal/names"
	"tributary/sources"
)

// builder makes the ports and endpoints of a Service.
type builder struct {
	Options

	in        Input
	out       *sources.Content
	byAddress map[string]*endpoint
	least     state // of endpoints, by what the Service says
}

// endpoint is an address with its ports, by their names in the ServiceEntry.
type endpoint struct {
	address, locality string
	ports             map[string]uint32
	state             state
}

// state says whether an endpoint is called. The highest one counts if an address is in several slices.
type state uint8

const (
	notReady state = iota
	draining
	ready
)

func (b *builder) leaveOut(what, why string) {
	meta := b.in.Service.Meta
	b.out.LeftOut = append(b.out.LeftOut, sources.LeftOut{What: what, Of: meta.Namespace + "/" + meta.Name, Why: why})
}

// ports returns the ports of the Service. In a ServiceEntry a number has one protocol: UDP is left out.
func (b *builder) ports() (ports []*networking.ServicePort) {
	taken := map[uint32]bool{}
	for _, udp := range []bool{false, true} {
		for _, p := range b.in.Service.Spec.Ports {
			switch {
			case (p.Protocol == "UDP") != udp:
			case taken[p.Port]:
				b.leaveOut(fmt.Sprintf("%s port %d", p.Protocol, p.Port), "the port has another protocol, too")
			default:
				taken[p.Port] = true
				ports = append(ports, &networking.ServicePort{Number: p.Port, Name: portName(p), Protocol: b.protocolOf(p)})
			}
		}
	}
	return ports
}

// portName returns the name of a port in the ServiceEntry. Only the port of a Service with one has none.
func portName(p ServicePort) string { return cmp.Or(p.Name, "port") }

// endpoints returns those that the options ask for and that are to be called, by address.
func (b *builder) endpoints() (all []*endpoint) {
	s := b.in.Service
	samePort := func(p ServicePort) uint32 { return p.Port }
	switch {
	case s.Spec.Type == typeExternalName:
		b.add(&endpoint{address: s.Spec.ExternalName, state: ready}, samePort)
	case b.Endpoints == EndpointsPods:
		b.pods()
	case b.Endpoints == EndpointsNodePorts:
		b.nodePorts()
	default:
		for _, in := range s.Status.LoadBalancer.Ingress {
			b.add(&endpoint{address: cmp.Or(in.IP, in.Hostname), state: ready}, samePort)
		}
	}
	// If no endpoint is ready, requests go to those that end and still serve, as with kube-proxy.
	least := draining
	for _, e := range b.byAddress {
		least = max(least, e.state)
	}
	for _, address := range slices.Sorted(maps.Keys(b.byAddress)) {
		if e := b.byAddress[address]; e.state >= least {
			all = append(all, e)
		} else {
			b.leaveOut(address, [...]string{notReady: "not ready", draining: "draining"}[e.state])
		}
	}
	return all
}

// unreachable says why clients outside the cluster cannot call the Service; empty if they can.
func (b *builder) unreachable(ports []*networking.ServicePort, endpoints []*endpoint) string {
	is, to, by := b.in.Service.Spec.Type, b.in.Service.Spec.ExternalName, b.Endpoints
	switch {
	case len(ports) == 0:
		return "it has no ports"
	case is == typeExternalName && (len(endpoints) == 0 || strings.HasSuffix(to, ".svc") || strings.Contains(to, ".svc.")):
		return fmt.Sprintf("only the cluster can resolve its external name %q", to)
	case is == typeExternalName || is == "LoadBalancer" || is == "NodePort" && by == EndpointsNodePorts || by == EndpointsPods:
		return ""
	}
	return "it has no " + by
}

// pods adds the endpoints of the slices. If a Service has two IP families, each pod is in two slices, and the first family counts.
func (b *builder) pods() {
	families := b.in.Service.Spec.IPFamilies
	byName := func(x, y *Slice) int { return cmp.Compare(x.Meta.Name, y.Meta.Name) }
	for _, slice := range slices.SortedFunc(slices.Values(b.in.Slices), byName) {
		for _, e := range slice.Endpoints {
			if e.address == "" || len(families) > 1 && slice.AddressType != families[0] {
				continue
			}
			at := e.place.Value()
			locality := b.in.Nodes[at.NodeName].locality(b.Region, at.Zone)
			b.add(&endpoint{address: e.address, locality: locality, state: max(e.state, b.least)}, func(p ServicePort) uint32 {
				for _, port := range slice.Ports {
					if port.Name == p.Name && cmp.Or(port.Protocol, "TCP") == cmp.Or(p.Protocol, "TCP") {
						return port.Port
					}
				}
				return 0
			})
		}
	}
}

// nodePorts adds the nodes. With externalTrafficPolicy Local only those with an endpoint that is ready answer.
func (b *builder) nodePorts() {
	answering := map[string]bool{}
	for _, slice := range b.in.Slices {
		for _, e := range slice.Endpoints {
			node := e.place.Value().NodeName
			answering[node] = answering[node] || max(e.state, b.least) == ready
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.in.Nodes)) {
		n := b.in.Nodes[name]
		if n.callable() && (answering[name] || b.in.Service.Spec.ExternalTrafficPolicy != "Local") {
			made := &endpoint{address: n.address(), locality: n.locality(b.Region, ""), state: ready}
			b.add(made, func(p ServicePort) uint32 { return p.NodePort })
		}
	}
}

// add adds an endpoint with the ports that number returns. Of one address the best state counts; the ports of equal states are joined.
func (b *builder) add(e *endpoint, number func(ServicePort) uint32) {
	address, err := names.Address(e.address)
	if err != nil {
		b.leaveOut(e.address, err.Error())
		return
	}
	other := b.byAddress[address]
	if other == nil || e.state > other.state {
		e.address, e.ports = address, map[string]uint32{}
		b.byAddress[address], other = e, e
	}
	if e.state < other.state {
		return
	}
	for _, p := range b.in.Service.Spec.Ports {
		if n := number(p); n != 0 && other.ports[portName(p)] == 0 {
			other.ports[portName(p)] = n
		}
	}
}
