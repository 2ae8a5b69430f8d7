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
	out       *Output
	ports     []*networking.ServicePort
	byAddress map[string]*endpoint
	endpoints []*endpoint // those to call, by address
}

// endpoint is an address with its ports, by their names in the ServiceEntry.
type endpoint struct {
	address, locality string
	ports             map[string]uint32
	state             state
}

// state says whether an endpoint is called. The highest one counts if an address is in several slices.
type state int

const (
	notReady state = iota
	draining
	ready
)

func (b *builder) leaveOut(what, why string) {
	meta := b.in.Service.Meta
	b.out.LeftOut = append(b.out.LeftOut, sources.LeftOut{What: what, Of: meta.Namespace + "/" + meta.Name, Why: why})
}

// readPorts reads the ports of the Service. In a ServiceEntry a number has one protocol: UDP is left out.
func (b *builder) readPorts() {
	taken := map[uint32]bool{}
	for _, udp := range []bool{false, true} {
		for _, p := range b.in.Service.Spec.Ports {
			switch {
			case (p.Protocol == "UDP") != udp:
			case taken[p.Port]:
				b.leaveOut(fmt.Sprintf("%s port %d", p.Protocol, p.Port), "the port has another protocol, too")
			default:
				taken[p.Port] = true
				b.ports = append(b.ports, &networking.ServicePort{Number: p.Port, Name: portName(p), Protocol: b.protocolOf(p)})
			}
		}
	}
}

// portName returns the name of a port in the ServiceEntry. Only the port of a Service with one has none.
func portName(p ServicePort) string { return cmp.Or(p.Name, "port") }

// readEndpoints makes the endpoints that the options ask for.
func (b *builder) readEndpoints() {
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
			b.endpoints = append(b.endpoints, e)
		} else {
			b.leaveOut(address, [...]string{notReady: "not ready", draining: "draining"}[e.state])
		}
	}
}

// unreachable says why clients outside the cluster cannot call the Service; empty if they can.
func (b *builder) unreachable() string {
	is, to, by := b.in.Service.Spec.Type, b.in.Service.Spec.ExternalName, b.Endpoints
	switch {
	case len(b.ports) == 0:
		return "it has no ports"
	case is == typeExternalName && (len(b.endpoints) == 0 || strings.HasSuffix(to, ".svc") || strings.Contains(to, ".svc.")):
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
			if len(e.Addresses) == 0 || len(families) > 1 && slice.AddressType != families[0] {
				continue
			}
			// The addresses of an endpoint are equivalent. As with kube-proxy, the first counts.
			made := &endpoint{
				address: e.Addresses[0], locality: b.in.Nodes[e.NodeName].locality(b.Region, e.Zone), state: b.stateOf(e),
			}
			b.add(made, func(p ServicePort) uint32 {
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

func (b *builder) stateOf(e Endpoint) state {
	is := func(condition *bool, unset bool) bool {
		return condition == nil && unset || condition != nil && *condition
	}
	switch c := e.Conditions; {
	case is(c.Ready, true) || b.in.Service.Spec.PublishNotReadyAddresses:
		return ready
	case is(c.Serving, true) && is(c.Terminating, false):
		return draining
	}
	return notReady
}

// nodePorts adds the nodes. With externalTrafficPolicy Local only those with an endpoint that is ready answer.
func (b *builder) nodePorts() {
	answering := map[string]bool{}
	for _, slice := range b.in.Slices {
		for _, e := range slice.Endpoints {
			answering[e.NodeName] = answering[e.NodeName] || b.stateOf(e) == ready
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.in.Nodes)) {
		n := b.in.Nodes[name]
		if n.callable() && n.address() != "" && (answering[name] || b.in.Service.Spec.ExternalTrafficPolicy != "Local") {
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
	e.address, e.ports = address, map[string]uint32{}
	for _, p := range b.in.Service.Spec.Ports {
		if n := number(p); n != 0 {
			e.ports[portName(p)] = n
		}
	}
	switch other := b.byAddress[address]; {
	case other == nil || e.state > other.state:
		b.byAddress[address] = e
	case e.state == other.state:
		maps.Copy(e.ports, other.ports)
		other.ports = e.ports
	}
}

// having returns the endpoints of a port.
func (b *builder) having(p *networking.ServicePort) (all []*endpoint) {
	for _, e := range b.endpoints {
		if e.ports[p.Name] != 0 {
			all = append(all, e)
		}
	}
	return all
}

// groups groups the ports that have the same endpoints: each endpoint of a ServiceEntry has all of its ports.
func (b *builder) groups() (all [][]*networking.ServicePort) {
	for _, p := range b.ports {
		i := slices.IndexFunc(all, func(group []*networking.ServicePort) bool { return slices.Equal(b.having(group[0]), b.having(p)) })
		if i < 0 {
			i, all = len(all), append(all, nil)
		}
		all[i] = append(all[i], p)
	}
	return all
}

// workloads returns the endpoints of a group of ports.
func (b *builder) workloads(ports []*networking.ServicePort) (all []*networking.WorkloadEntry) {
	for _, e := range b.having(ports[0]) {
		we := &networking.WorkloadEntry{Address: e.address, Ports: map[string]uint32{}, Locality: e.locality}
		for _, p := range ports {
			we.Ports[p.Name] = e.ports[p.Name]
		}
		all = append(all, we)
	}
	return all
}
