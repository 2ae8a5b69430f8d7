// Package mapping turns Services of Kubernetes into Istio's ServiceEntries. It is pure: no I/O, no clock, no state. Its
// objects are valid, and depend only on the content of the Services, not on its order.
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

// Options say which Services become ServiceEntries, and how: see README.md of package kube. Zero values stand for the
// defaults.
type Options struct {
	Export       string // ExportAll, the default, or ExportServiceExports
	Endpoints    string // EndpointsPods, the default, or another of these values
	HostTemplate string // contains {service} and {namespace}
	Region       string // region of endpoints whose node has none
	VIPs         string // the Services that get a virtual address: registry.VIPsTCP, the default, or another value of it
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
		return fmt.Errorf("endpoints: want %s, %s or %s, got %q", EndpointsPods, EndpointsNodePorts, EndpointsLoadBalancer,
			o.Endpoints)
	case !strings.Contains(o.HostTemplate, "{service}") || !strings.Contains(o.HostTemplate, "{namespace}"):
		return fmt.Errorf("hostTemplate: %q must contain {service} and {namespace}, since Services differ in them",
			o.HostTemplate)
	case o.Region != "" && !names.IsLabelText(o.Region):
		return fmt.Errorf("region: %q is no region", o.Region)
	}
	return registry.CheckCommon(o.HostTemplate, "x", o.VIPs, "{service}", "{namespace}")
}

// Mapper maps Services of a cluster. It is safe for concurrent use.
type Mapper struct {
	Options
	vips    registry.VIPs
	cluster string
}

// New returns a mapper. cluster names the cluster in messages. Without vips no Service gets a virtual address. An error
// begins with the key at fault.
func New(o Options, vips registry.VIPs, cluster string) (*Mapper, error) {
	o = o.WithDefaults()
	return &Mapper{o, vips, cluster}, o.check()
}

// Input is a Service with the other objects that its ServiceEntries are made of.
type Input struct {
	Service  *Service
	Slices   []*Slice          // EndpointSlices of the Service
	Nodes    map[string]*Node  // by name. EndpointsNodePorts needs them; otherwise they give localities, and may be nil
	Accounts map[string]string // service accounts of Pods, by namespace/name; may be nil
	Exported bool              // the Service has a ServiceExport
}

// Lacks reports whether the input lacks the account of a Pod.
func (input Input) Lacks() bool {
	for _, slice := range input.Slices {
		if slices.ContainsFunc(slice.Endpoints.Pods,
			func(pod string) bool { return pod != "" && input.Accounts[pod] == "" }) {
			return true
		}
	}
	return false
}

const typeExternalName = "ExternalName"

// Map returns the ServiceEntries of a Service: one, or several if its ports have different endpoints. There are none if
// it is not exported.
func (m *Mapper) Map(input Input) (content sources.Content) {
	meta := input.Service.Meta
	exportTo := strings.FieldsFunc(meta.Annotations.ExportTo, func(r rune) bool { return r == ',' || r == ' ' })
	if slices.Contains(exportTo, "~") || m.Export == ExportServiceExports && !input.Exported {
		return content
	}
	name := "Service " + meta.Namespace + "/" + meta.Name
	origin := resource.Origin{Place: strings.TrimSpace(m.cluster + " " + name)}
	host := strings.NewReplacer("{service}", meta.Name, "{namespace}", meta.Namespace).Replace(m.HostTemplate)
	host = names.FitHost(host, name)
	builder := entryBuilder{options: m.Options, input: input, content: &content, byAddress: map[string]*endpoint{}}
	if input.Service.Spec.PublishNotReadyAddresses {
		builder.leastState = ready
	}
	ports := builder.servicePorts()
	endpoints := builder.endpoints()
	if reason := builder.unreachable(ports, endpoints); reason != "" {
		builder.leaveOut(host, reason)
		return content
	}
	hostless := slices.ContainsFunc(ports, func(p *networking.ServicePort) bool {
		return !protocol.Parse(p.Protocol).IsHTTP() && !protocol.Parse(p.Protocol).IsTLS()
	})
	addresses, warnings := registry.Address(m.vips, m.VIPs, host, name, hostless)
	content.Warnings = warnings
	for i, entry := range entries(host, ports, endpoints) {
		entry.ExportTo = exportTo
		entry.Addresses = addresses
		if input.Service.Spec.Type == typeExternalName {
			entry.Location = networking.ServiceEntry_MESH_EXTERNAL
		}
		object := meta.Name + "." + meta.Namespace + ".svc"
		if i > 0 {
			object += "." + entry.Ports[0].Name + ".port"
		}
		key := resource.Key{Kind: resource.ServiceEntry, Namespace: meta.Namespace, Name: object}
		current, err := resource.New(resource.Meta{Key: key, Origin: origin}, entry)
		if err != nil { // the table keeps the previous objects
			return sources.Content{Rejects: []sources.Reject{{Origin: origin, Err: fmt.Errorf("%s: %w", name, err)}}}
		}
		content.Resources = append(content.Resources, current)
	}
	return content
}

// entries returns a ServiceEntry for each group of ports with the same endpoints: each endpoint of a ServiceEntry has
// all of its ports.
func entries(host string, ports []*networking.ServicePort, endpoints []*endpoint) (entries []*networking.ServiceEntry) {
	for _, port := range ports {
		var members []registry.Endpoint
		for _, endpoint := range endpoints {
			member := endpoint.Endpoint
			member.Port = endpoint.ports[port.Name]
			if member.Port != 0 {
				members = append(members, member)
			}
		}
		entry := registry.ServiceEntry(host, port.Number, port.Name, port.Protocol, members)
		i := slices.IndexFunc(entries, func(earlier *networking.ServiceEntry) bool {
			same := func(x, y *networking.WorkloadEntry) bool { return x.Address == y.Address }
			return slices.EqualFunc(earlier.Endpoints, entry.Endpoints, same)
		})
		if i < 0 {
			entries = append(entries, entry)
			continue
		}
		entries[i].Ports = append(entries[i].Ports, port)
		for j, endpoint := range entry.Endpoints {
			entries[i].Endpoints[j].Ports[port.Name] = endpoint.Ports[port.Name]
		}
	}
	return entries
}

// The values of appProtocol, beyond names of protocols, and the ports that istiod recognizes.
var (
	appProtocols = map[string]protocol.Instance{
		"kubernetes.io/h2c": protocol.HTTP2, "kubernetes.io/ws": protocol.HTTP, "kubernetes.io/wss": protocol.HTTPS,
	}
	serversSpeakFirst = []uint32{25, 53, 3306, 27017}
)

// protocolOf returns the protocol of a port by istiod's rules; empty if proxies detect it.
func protocolOf(servicePort ServicePort) string {
	name := servicePort.Name
	if servicePort.AppProtocol != nil {
		name = cmp.Or(string(appProtocols[*servicePort.AppProtocol]), *servicePort.AppProtocol)
	}
	prefix, _, _ := strings.Cut(name, "-")
	switch instance := protocol.Parse(prefix); {
	case servicePort.Protocol == "UDP":
		return string(protocol.UDP)
	case strings.HasPrefix(strings.ToLower(name), "grpc-web"):
		return string(protocol.GRPCWeb)
	case !instance.IsUnsupported():
		return string(instance)
	case slices.Contains(serversSpeakFirst, servicePort.Port):
		return string(protocol.TCP)
	}
	return ""
}

// entryBuilder makes the ports and endpoints of a Service.
type entryBuilder struct {
	options    Options
	input      Input
	content    *sources.Content
	byAddress  map[string]*endpoint
	leastState state // an endpoint has this state or a higher one; ready with publishNotReadyAddresses
}

// endpoint is an address with its ports, by their names in the ServiceEntry.
type endpoint struct {
	registry.Endpoint
	state state
	ports map[string]uint32
}

// state says whether an endpoint gets requests. If an address is in several slices, the highest state counts.
type state uint8

const (
	notReady state = iota
	draining
	ready
)

func (b *entryBuilder) leaveOut(address, reason string) {
	meta := b.input.Service.Meta
	b.content.LeftOut = append(b.content.LeftOut, sources.LeftOut{
		What: address, Of: meta.Namespace + "/" + meta.Name, Why: reason,
	})
}

// servicePorts returns the ports of the Service. In a ServiceEntry a number has a single protocol. If it has several in
// the Service, UDP is left out, which sorts last.
func (b *entryBuilder) servicePorts() (ports []*networking.ServicePort) {
	byProtocol := func(x, y ServicePort) int { return strings.Compare(x.Protocol, y.Protocol) }
	for _, port := range slices.SortedStableFunc(slices.Values(b.input.Service.Spec.Ports), byProtocol) {
		if slices.ContainsFunc(ports, func(earlier *networking.ServicePort) bool { return earlier.Number == port.Port }) {
			b.leaveOut(fmt.Sprintf("%s port %d", port.Protocol, port.Port), "the port has another protocol, too")
		} else {
			ports = append(ports, &networking.ServicePort{Number: port.Port, Name: portName(port), Protocol: protocolOf(port)})
		}
	}
	return ports
}

// portName returns the name of a port in the ServiceEntry. Only a Service's single port may have no name.
func portName(p ServicePort) string { return cmp.Or(p.Name, "port") }

// endpoints returns the endpoints that the options select and that should get requests, in order of address.
func (b *entryBuilder) endpoints() (endpoints []*endpoint) {
	samePort := func(p ServicePort) uint32 { return p.Port }
	switch {
	case b.input.Service.Spec.Type == typeExternalName:
		b.add(registry.Endpoint{Address: b.input.Service.Spec.ExternalName}, ready, samePort)
	case b.options.Endpoints == EndpointsPods:
		b.pods()
	case b.options.Endpoints == EndpointsNodePorts:
		b.nodePorts()
	default:
		for _, ingress := range b.input.Service.Status.LoadBalancer.Ingress {
			b.add(registry.Endpoint{Address: cmp.Or(ingress.IP, ingress.Hostname)}, ready, samePort)
		}
	}
	// If no endpoint is ready, requests go to terminating endpoints that still serve, as with kube-proxy.
	required := draining
	for _, candidate := range b.byAddress {
		required = max(required, candidate.state)
	}
	for _, address := range slices.Sorted(maps.Keys(b.byAddress)) {
		if candidate := b.byAddress[address]; candidate.state >= required {
			endpoints = append(endpoints, candidate)
		} else {
			b.leaveOut(address, [...]string{notReady: "not ready", draining: "draining"}[candidate.state])
		}
	}
	return endpoints
}

// unreachable returns the reason that clients outside the cluster cannot call the Service; empty if they can.
func (b *entryBuilder) unreachable(ports []*networking.ServicePort, endpoints []*endpoint) string {
	kind, external := b.input.Service.Spec.Type, b.input.Service.Spec.ExternalName
	access := b.options.Endpoints
	switch {
	case len(ports) == 0:
		return "it has no ports"
	case kind == typeExternalName && (len(endpoints) == 0 || strings.Contains(external+".", ".svc.")):
		return fmt.Sprintf("only the cluster can resolve its external name %q", external)
	case kind == typeExternalName || kind == "LoadBalancer" || kind == "NodePort" && access == EndpointsNodePorts ||
		access == EndpointsPods:
		return ""
	}
	return "it has no " + access
}

// pods adds the endpoints of the slices. If a Service has two IP families, each pod is in two slices, and the first
// family counts.
func (b *entryBuilder) pods() {
	families := b.input.Service.Spec.IPFamilies
	byName := func(x, y *Slice) int { return cmp.Compare(x.Meta.Name, y.Meta.Name) }
	for _, slice := range slices.SortedFunc(slices.Values(b.input.Slices), byName) {
		addresses := strings.Split(slice.Endpoints.addresses, ",")
		for i, handle := range slice.Endpoints.places {
			if addresses[i] == "" || len(families) > 1 && slice.AddressType != families[0] {
				continue
			}
			place := handle.Value()
			endpoint := registry.Endpoint{
				Address:  addresses[i],
				Locality: b.input.Nodes[place.NodeName].locality(b.options.Region, place.Zone),
			}
			if b.input.Accounts != nil {
				endpoint.ServiceAccount = b.input.Accounts[slice.Endpoints.Pods[i]]
			}
			b.add(endpoint, max(place.state, b.leastState), slice.portOf)
		}
	}
}

// nodePorts adds the nodes. With externalTrafficPolicy Local, only nodes with a ready endpoint answer.
func (b *entryBuilder) nodePorts() {
	answering := map[string]bool{}
	for _, slice := range b.input.Slices {
		for _, handle := range slice.Endpoints.places {
			place := handle.Value()
			if max(place.state, b.leastState) == ready {
				answering[place.NodeName] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.input.Nodes)) {
		node := b.input.Nodes[name]
		if node.callable() && (answering[name] || b.input.Service.Spec.ExternalTrafficPolicy != "Local") {
			endpoint := registry.Endpoint{Address: node.address(), Locality: node.locality(b.options.Region, "")}
			b.add(endpoint, ready, func(p ServicePort) uint32 { return p.NodePort })
		}
	}
}

// add adds an endpoint. number returns the number of a port of the Service there; 0 for none. The highest state of an
// address counts. If endpoints of an address have the same state, it has the ports of all of them.
func (b *entryBuilder) add(added registry.Endpoint, state state, number func(ServicePort) uint32) {
	address, err := names.Address(added.Address)
	if err != nil {
		b.leaveOut(added.Address, err.Error())
		return
	}
	existing := b.byAddress[address]
	if existing == nil || state > existing.state {
		added.Address = address
		existing = &endpoint{added, state, map[string]uint32{}}
		b.byAddress[address] = existing
	}
	if state < existing.state {
		return
	}
	for _, port := range b.input.Service.Spec.Ports {
		name := portName(port)
		if n := number(port); n != 0 && existing.ports[name] == 0 {
			existing.ports[name] = n
		}
	}
}
