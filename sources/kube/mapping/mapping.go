// Package mapping turns Services of Kubernetes into Istio's ServiceEntries. It is pure: no I/O, no clock, no memory. What it makes is
// valid, and is the same for the same content, in whatever order that comes.
package mapping

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
	"istio.io/istio/pkg/config/protocol"

	"tributary/internal/names"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/registry"
)

// Options say which Services become ServiceEntries, and how, as README.md of package kube has them. Zero values stand for the defaults.
type Options struct {
	Export, Endpoints string // of the values below; all, and pods
	HostTemplate      string // made of {service} and {namespace}
	Region            string // of endpoints whose node names none, or is not read
	VIPs              string // the Services that get a virtual address: a value of registry.VIPsTCP, the default, and its like
}

// The values of options.
const (
	ExportAll             = "all"
	ExportServiceExports  = "serviceExports"
	EndpointsPods         = "pods"
	EndpointsNodePorts    = "nodePorts"
	EndpointsLoadBalancer = "loadBalancer"
)

// WithDefaults returns the options with defaults for those that are not set.
func (o Options) WithDefaults() Options {
	o.Export = cmp.Or(o.Export, ExportAll)
	o.HostTemplate = cmp.Or(o.HostTemplate, "{service}.{namespace}.svc.cluster.local")
	o.Endpoints = cmp.Or(o.Endpoints, EndpointsPods)
	o.VIPs = cmp.Or(o.VIPs, registry.VIPsTCP)
	return o
}

// check checks options with defaults. An error begins with the key at fault.
func (o Options) check() error {
	switch {
	case o.Export != ExportAll && o.Export != ExportServiceExports:
		return fmt.Errorf("export: want %s or %s, got %q", ExportAll, ExportServiceExports, o.Export)
	case o.Endpoints != EndpointsPods && o.Endpoints != EndpointsNodePorts && o.Endpoints != EndpointsLoadBalancer:
		return fmt.Errorf("endpoints: want %s, %s or %s, got %q", EndpointsPods, EndpointsNodePorts, EndpointsLoadBalancer, o.Endpoints)
	case !strings.Contains(o.HostTemplate, "{service}") || !strings.Contains(o.HostTemplate, "{namespace}"):
		return fmt.Errorf("hostTemplate: %q must contain {service} and {namespace}, by which Services differ", o.HostTemplate)
	case o.Region != "" && !names.IsLabelText(o.Region):
		return fmt.Errorf("region: %q is no region", o.Region)
	}
	return registry.CheckCommon(o.HostTemplate, "x", o.VIPs, "{service}", "{namespace}")
}

// Mapper maps Services of one cluster. It is safe for concurrent use.
type Mapper struct {
	Options
	vips    registry.VIPs
	cluster string
}

// New returns a mapper of a cluster, which people know by a name. Without vips no Service gets a virtual address. An error begins with the
// key at fault.
func New(o Options, vips registry.VIPs, cluster string) (*Mapper, error) {
	o = o.WithDefaults()
	return &Mapper{o, vips, cluster}, o.check()
}

// Input is a Service with what its ServiceEntries are made of.
type Input struct {
	Service  *Service
	Slices   []*Slice          // of the Service
	Nodes    map[string]*Node  // by name. Endpoints nodePorts needs them; else they are for localities, and may be nil
	Accounts map[string]string // of Pods, by namespace/name; may be nil
	Exported bool              // by a ServiceExport
}

// Lacks reports whether the account of a Pod is not known.
func (in Input) Lacks() bool {
	for _, slice := range in.Slices {
		if slices.ContainsFunc(slice.Endpoints.Pods, func(pod string) bool { return pod != "" && in.Accounts[pod] == "" }) {
			return true
		}
	}
	return false
}

const typeExternalName = "ExternalName"

// Map returns the ServiceEntries of a Service: one, or several if its ports have different endpoints. There are none if it is not exported.
func (m *Mapper) Map(in Input) (out sources.Content) {
	meta := in.Service.Meta
	exportTo := strings.FieldsFunc(meta.Annotations.ExportTo, func(r rune) bool { return r == ',' || r == ' ' })
	if slices.Contains(exportTo, "~") || m.Export == ExportServiceExports && !in.Exported {
		return out
	}
	name := "Service " + meta.Namespace + "/" + meta.Name
	origin := resource.Origin{Place: strings.TrimSpace(m.cluster + " " + name)}
	host := names.FitHost(strings.NewReplacer("{service}", meta.Name, "{namespace}", meta.Namespace).Replace(m.HostTemplate), name)
	least := map[bool]state{true: ready}[in.Service.Spec.PublishNotReadyAddresses]
	b := builder{m.Options, in, &out, map[string]*endpoint{}, least}
	ports, endpoints := b.servicePorts(), b.endpoints()
	if why := b.unreachable(ports, endpoints); why != "" {
		b.leaveOut(host, why)
		return out
	}
	hostless := slices.ContainsFunc(ports, func(p *networking.ServicePort) bool {
		return !protocol.Parse(p.Protocol).IsHTTP() && !protocol.Parse(p.Protocol).IsTLS()
	})
	addresses, warnings := registry.Address(m.vips, m.VIPs, host, name, hostless)
	out.Warnings = warnings
	for i, se := range entries(host, ports, endpoints) {
		if se.ExportTo, se.Addresses = exportTo, addresses; in.Service.Spec.Type == typeExternalName {
			se.Location = networking.ServiceEntry_MESH_EXTERNAL
		}
		object := meta.Name + "." + meta.Namespace + ".svc"
		if i > 0 {
			object += "." + se.Ports[0].Name + ".port"
		}
		key := resource.Key{Kind: resource.ServiceEntry, Namespace: meta.Namespace, Name: object}
		r, err := resource.New(resource.Meta{Key: key, Origin: origin}, se)
		if err != nil { // what was made before stays
			return sources.Content{Rejects: []sources.Reject{{Origin: origin, Err: fmt.Errorf("%s: %w", name, err)}}}
		}
		out.Resources = append(out.Resources, r)
	}
	return out
}

// entries returns one for each group of ports that have the same endpoints: each endpoint of a ServiceEntry has all of its ports.
func entries(host string, ports []*networking.ServicePort, endpoints []*endpoint) (all []*networking.ServiceEntry) {
	for _, p := range ports {
		var having []registry.Endpoint
		for _, e := range endpoints {
			if one := e.Endpoint; e.ports[p.Name] != 0 {
				one.Port = e.ports[p.Name]
				having = append(having, one)
			}
		}
		se := registry.ServiceEntry(host, p.Number, p.Name, p.Protocol, having)
		i := slices.IndexFunc(all, func(other *networking.ServiceEntry) bool {
			same := func(x, y *networking.WorkloadEntry) bool { return x.Address == y.Address }
			return slices.EqualFunc(other.Endpoints, se.Endpoints, same)
		})
		if i < 0 {
			all = append(all, se)
			continue
		}
		all[i].Ports = append(all[i].Ports, p)
		for j, e := range se.Endpoints {
			all[i].Endpoints[j].Ports[p.Name] = e.Ports[p.Name]
		}
	}
	return all
}

// Of appProtocols and ports, istiod knows these besides the names of protocols.
var (
	appProtocols = map[string]protocol.Instance{
		"kubernetes.io/h2c": protocol.HTTP2, "kubernetes.io/ws": protocol.HTTP, "kubernetes.io/wss": protocol.HTTPS,
	}
	serversSpeakFirst = []uint32{25, 53, 3306, 27017}
)

// protocolOf returns the protocol of a port as istiod has it; empty if it is to be detected.
func protocolOf(p ServicePort) string {
	name := p.Name
	if p.AppProtocol != nil {
		name = cmp.Or(string(appProtocols[*p.AppProtocol]), *p.AppProtocol)
	}
	prefix, _, _ := strings.Cut(name, "-")
	switch is := protocol.Parse(prefix); {
	case p.Protocol == "UDP":
		return string(protocol.UDP)
	case strings.HasPrefix(strings.ToLower(name), "grpc-web"):
		return string(protocol.GRPCWeb)
	case !is.IsUnsupported():
		return string(is)
	case slices.Contains(serversSpeakFirst, p.Port):
		return string(protocol.TCP)
	}
	return ""
}

// builder makes the ports and endpoints of a Service.
type builder struct {
	Options
	Input

	out       *sources.Content
	byAddress map[string]*endpoint
	least     state // of endpoints, by what the Service says
}

// endpoint is an address with its ports, by their names in the ServiceEntry.
type endpoint struct {
	registry.Endpoint
	state state
	ports map[string]uint32
}

// state says whether an endpoint is called. The highest one counts if an address is in several slices.
type state uint8

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
			ports = append(ports, &networking.ServicePort{Number: p.Port, Name: portName(p), Protocol: protocolOf(p)})
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
	is, to, by := b.Service.Spec.Type, b.Service.Spec.ExternalName, b.Endpoints
	switch {
	case len(ports) == 0:
		return "it has no ports"
	case is == typeExternalName && (len(endpoints) == 0 || strings.Contains(to+".", ".svc.")):
		return fmt.Sprintf("only the cluster can resolve its external name %q", to)
	case is == typeExternalName || is == "LoadBalancer" || is == "NodePort" && by == EndpointsNodePorts || by == EndpointsPods:
		return ""
	}
	return "it has no " + by
}

// pods adds the endpoints of the slices. If a Service has two IP families, each pod is in two slices, and the first family counts.
func (b *builder) pods() {
	families := b.Service.Spec.IPFamilies
	byName := func(x, y *Slice) int { return cmp.Compare(x.Meta.Name, y.Meta.Name) }
	for _, slice := range slices.SortedFunc(slices.Values(b.Slices), byName) {
		addresses := strings.Split(slice.Endpoints.addresses, ",")
		for i, e := range slice.Endpoints.places {
			if addresses[i] == "" || len(families) > 1 && slice.AddressType != families[0] {
				continue
			}
			at := e.Value()
			made := registry.Endpoint{Address: addresses[i], Locality: b.Nodes[at.NodeName].locality(b.Region, at.Zone)}
			if b.Accounts != nil {
				made.ServiceAccount = b.Accounts[slice.Endpoints.Pods[i]]
			}
			b.add(made, max(at.state, b.least), slice.portOf)
		}
	}
}

// nodePorts adds the nodes. With externalTrafficPolicy Local only those with an endpoint that is ready answer.
func (b *builder) nodePorts() {
	answering := map[string]bool{}
	for _, slice := range b.Slices {
		for _, e := range slice.Endpoints.places {
			at := e.Value()
			answering[at.NodeName] = answering[at.NodeName] || max(at.state, b.least) == ready
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
