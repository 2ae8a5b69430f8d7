// Package mapping turns Services of Kubernetes into Istio's ServiceEntries. It is pure: no I/O, no clock, no memory. What it makes is
// valid, and is the same for the same content, in whatever order that comes.
package mapping

import (
	"cmp"
	"fmt"
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
	Namespace         string // of the objects. Default: that of each Service
	Region            string // of endpoints whose node names none, or is not read
	DefaultProtocol   string // of ports whose name and appProtocol say none. Default: istiod detects it; Envoys get TCP
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
	case o.DefaultProtocol != "" && protocol.Parse(o.DefaultProtocol).IsUnsupported():
		return fmt.Errorf("defaultProtocol: Istio knows no protocol %q", o.DefaultProtocol)
	}
	return registry.CheckCommon(o.HostTemplate, cmp.Or(o.Namespace, "x"), o.VIPs, "{service}", "{namespace}")
}

// Mapper maps Services of one cluster. It is safe for concurrent use.
type Mapper struct {
	o    Options
	vips registry.VIPs
}

// New returns a mapper. Without vips no Service gets a virtual address. An error begins with the key at fault.
func New(o Options, vips registry.VIPs) (*Mapper, error) {
	o = o.WithDefaults()
	return &Mapper{o, vips}, o.check()
}

// Input is a Service with what its ServiceEntries are made of.
type Input struct {
	Service  *Service
	Slices   []*Slice         // of the Service
	Nodes    map[string]*Node // by name. Endpoints nodePorts needs them; else they are for localities, and may be nil
	Exported bool             // by a ServiceExport
}

const typeExternalName = "ExternalName"

// Map returns the ServiceEntries of a Service: one, or several if its ports have different endpoints. There are none if it is not exported.
// An error says why there is none, though it is.
func (m *Mapper) Map(in Input) (out sources.Content, err error) {
	meta := in.Service.Meta
	exportTo := strings.FieldsFunc(meta.Annotations.ExportTo, func(r rune) bool { return r == ',' || r == ' ' })
	if slices.Contains(exportTo, "~") || m.o.Export == ExportServiceExports && !in.Exported {
		return out, nil
	}
	place := "Service " + meta.Namespace + "/" + meta.Name
	host := names.FitHost(strings.NewReplacer("{service}", meta.Name, "{namespace}", meta.Namespace).Replace(m.o.HostTemplate), place)
	least := map[bool]state{true: ready}[in.Service.Spec.PublishNotReadyAddresses]
	b := builder{Options: m.o, in: in, out: &out, byAddress: map[string]*endpoint{}, least: least}
	ports, endpoints := b.ports(), b.endpoints()
	if why := b.unreachable(ports, endpoints); why != "" {
		b.leaveOut(host, why)
		return out, nil
	}
	hostless := slices.ContainsFunc(ports, func(p *networking.ServicePort) bool {
		return !protocol.Parse(p.Protocol).IsHTTP() && !protocol.Parse(p.Protocol).IsTLS()
	})
	addresses, warnings := registry.Address(m.vips, m.o.VIPs, host, place, hostless)
	out.Warnings = warnings
	for i, se := range entries(host, ports, endpoints) {
		if se.ExportTo, se.Addresses = exportTo, addresses; in.Service.Spec.Type == typeExternalName {
			se.Location = networking.ServiceEntry_MESH_EXTERNAL
		}
		object := meta.Name + "." + meta.Namespace + ".svc"
		if i > 0 {
			object += "." + se.Ports[0].Name + ".port"
		}
		r, err := resource.New(resource.Meta{
			Key:    resource.Key{Kind: resource.ServiceEntry, Namespace: cmp.Or(m.o.Namespace, meta.Namespace), Name: object},
			Origin: resource.Origin{Place: place},
		}, se)
		if err != nil {
			return sources.Content{}, fmt.Errorf("%s: %w", place, err)
		}
		out.Resources = append(out.Resources, r)
	}
	return out, nil
}

// entries returns one for each group of ports that have the same endpoints: each endpoint of a ServiceEntry has all of its ports.
func entries(host string, ports []*networking.ServicePort, endpoints []*endpoint) (all []*networking.ServiceEntry) {
	for _, p := range ports {
		var having []registry.Endpoint
		for _, e := range endpoints {
			if port := e.ports[p.Name]; port != 0 {
				having = append(having, registry.Endpoint{Address: e.address, Port: port, Locality: e.locality})
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

// protocolOf returns the protocol of a port as istiod has it, else the default; empty if it is to be detected.
func (o Options) protocolOf(p ServicePort) string {
	name := p.Name
	if p.AppProtocol != nil {
		name = cmp.Or(string(appProtocols[*p.AppProtocol]), *p.AppProtocol)
	}
	prefix, _, _ := strings.Cut(name, "-")
	is := protocol.Parse(prefix)
	switch {
	case p.Protocol == "UDP":
		is = protocol.UDP
	case strings.HasPrefix(strings.ToLower(name), "grpc-web"):
		is = protocol.GRPCWeb
	case is.IsUnsupported() && slices.Contains(serversSpeakFirst, p.Port):
		is = protocol.TCP
	case is.IsUnsupported():
		is = protocol.Parse(o.DefaultProtocol)
	}
	if is.IsUnsupported() {
		return ""
	}
	return string(is)
}
