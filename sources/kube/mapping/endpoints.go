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
	"tributary/sources/registry"
)

// builder makes the ports and endpoints of a Service.
type builder struct {
	Options
	Input

	out       *sources.Content
	byAddress map[string]*endpoint
}

// endpoint is an address with its ports, by their names in the ServiceEntry.
type endpoint struct {
	registry.Endpoint
	state state
	ports map[string]uint32
}

// state says whether an endpoint is called. The highest one counts if an address is in several slices.
type state int

const (
	notReady state = iota
	draining
	ready
)

func (b *builder) leaveOut(what, why string) {
	meta := b.Service.Meta
	b.out.LeftOut = append(b.out.LeftOut, sources.LeftOut{What: what, Of: meta.Namespace + "/" + meta.Name, Why: why})
}

// servicePorts returns the ports of the Service. In a ServiceEntry a number has one protocol: UDP, which comes last, is left out.
func (b *builder) servicePorts() (ports []*networking.ServicePort) {
	byProtocol := func(x, y ServicePort) int { return strings.Compare(x.Protocol, y.Protocol) }
	for _, p := range slices.SortedStableFunc(slices.Values(b.Service.Spec.Ports), byProtocol) {
		if slices.ContainsFunc(ports, func(other *networking.ServicePort) bool { return other.Number == p.Port }) {
			b.leaveOut(fmt.Sprintf("%s port %d", p.Protocol, p.Port), "the port has another protocol, too")
		} else {
			ports = append(ports, &networking.ServicePort{Number: p.Port, Name: portName(p), Protocol: b.protocolOf(p)})
		}
	}
	return ports
}

// portName returns the name of a port in the ServiceEntry. Only the port of a Service with one has none.
func portName(p ServicePort) string { return cmp.Or(p.Name, "port") }

// endpoints returns those that the options ask for and that are to be called, by address.
func (b *builder) endpoints() (all []*endpoint) {
	samePort := func(p ServicePort) uint32 { return p.Port }
	switch {
	case b.Service.Spec.Type == typeExternalName:
		b.add(registry.Endpoint{Address: b.Service.Spec.ExternalName}, ready, samePort)
	case b.Endpoints == EndpointsPods:
		b.pods()
	case b.Endpoints == EndpointsNodePorts:
		b.nodePorts()
	default:
		for _, in := range b.Service.Status.LoadBalancer.Ingress {
			b.add(registry.Endpoint{Address: cmp.Or(in.IP, in.Hostname)}, ready, samePort)
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
	is, to := b.Service.Spec.Type, b.Service.Spec.ExternalName
	switch {
	case len(ports) == 0:
		return "it has no ports"
	case is == typeExternalName && (len(endpoints) == 0 || strings.Contains(to+".", ".svc.")):
		return fmt.Sprintf("only the cluster can resolve its external name %q", to)
	case is == typeExternalName || b.Endpoints == EndpointsPods || is == "LoadBalancer" || is == "NodePort" && b.Endpoints == EndpointsNodePorts:
		return ""
	}
	return "it has no " + b.Endpoints
}

// pods adds the endpoints of the slices. If a Service has two IP families, each pod is in two slices, and the first family counts.
func (b *builder) pods() {
	families := b.Service.Spec.IPFamilies
	byName := func(x, y *Slice) int { return cmp.Compare(x.Meta.Name, y.Meta.Name) }
	for _, slice := range slices.SortedFunc(slices.Values(b.Slices), byName) {
		for _, e := range slice.Endpoints {
			if len(e.Addresses) == 0 || len(families) > 1 && slice.AddressType != families[0] {
				continue
			}
			// The addresses of an endpoint are equivalent. As with kube-proxy, the first counts.
			locality := b.Nodes[e.NodeName].locality(b.Region, e.Zone)
			b.add(registry.Endpoint{Address: e.Addresses[0], Locality: locality}, b.stateOf(e), slice.portOf)
		}
	}
}

func (b *builder) stateOf(e Endpoint) state {
	c := e.Conditions
	switch {
	case c.Ready == nil || *c.Ready || b.Service.Spec.PublishNotReadyAddresses:
		return ready
	case (c.Serving == nil || *c.Serving) && c.Terminating != nil && *c.Terminating:
		return draining
	}
	return notReady
}

// nodePorts adds the nodes. With externalTrafficPolicy Local only those with an endpoint that is ready answer.
func (b *builder) nodePorts() {
	answering := map[string]bool{}
	for _, slice := range b.Slices {
		for _, e := range slice.Endpoints {
			answering[e.NodeName] = answering[e.NodeName] || b.stateOf(e) == ready
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.Nodes)) {
		n := b.Nodes[name]
		if n.callable() && (answering[name] || b.Service.Spec.ExternalTrafficPolicy != "Local") {
			made := registry.Endpoint{Address: n.address(), Locality: n.locality(b.Region, "")}
			b.add(made, ready, func(p ServicePort) uint32 { return p.NodePort })
		}
	}
}

// add adds an endpoint with the ports that number returns. Of one address the best state counts; the ports of equal states are joined.
func (b *builder) add(e registry.Endpoint, s state, number func(ServicePort) uint32) {
	address, err := names.Address(e.Address)
	if err != nil {
		b.leaveOut(e.Address, err.Error())
		return
	}
	made := b.byAddress[address]
	if made == nil || s > made.state {
		e.Address = address
		made = &endpoint{e, s, map[string]uint32{}}
		b.byAddress[address] = made
	}
	for _, p := range b.Service.Spec.Ports {
		if n := number(p); s == made.state && n != 0 && made.ports[portName(p)] == 0 {
			made.ports[portName(p)] = n
		}
	}
}
