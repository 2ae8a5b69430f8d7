// Package mapping turns the services of a Nacos into Istio's ServiceEntries. It is pure: no I/O, no clock, no memory. What it makes is
// valid, whatever is in a Nacos, and is the same for the same content, in whatever order that comes.
package mapping

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"tributary/internal/names"
	"tributary/resource"
	"tributary/sources/nacos/client"
	"tributary/sources/registry/entry"
)

// VIPs gives hosts virtual addresses.
type VIPs = entry.VIPs

// Port is how clients find a service.
type Port = entry.Port

// Mapper maps services of one namespace of Nacos. It is safe for concurrent use.
type Mapper struct {
	o         Options
	namespace string // of Nacos
	vips      VIPs
}

// New returns a mapper for a namespace of Nacos. Without vips no service gets a virtual address. An error begins with the key at fault.
func New(o Options, namespace string, vips VIPs) (*Mapper, error) {
	o = o.WithDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	return &Mapper{o: o, namespace: namespace, vips: vips}, nil
}

// ID is what hosts are told apart by. Cluster is empty if hosts do not tell clusters apart.
type ID struct{ Group, Service, Cluster string }

// Compare orders IDs.
func (id ID) Compare(o ID) int {
	return cmp.Or(cmp.Compare(id.Group, o.Group), cmp.Compare(id.Service, o.Service), cmp.Compare(id.Cluster, o.Cluster))
}

func (id ID) String() string { return id.Group + "@@" + id.Service + "@@" + id.Cluster }

// IDOf returns that of an instance.
func (m *Mapper) IDOf(group, service string, i client.Instance) ID {
	return m.idOf(ID{group, service, cmp.Or(i.Cluster, defaultCluster)})
}

func (m *Mapper) idOf(id ID) ID {
	if !strings.Contains(m.o.HostTemplate, "{cluster}") {
		id.Cluster = ""
	}
	return id
}

// RestoredID returns the ID, as the template tells hosts apart now, of an endpoint of what was restored. Where another template did not
// tell clusters apart, the label says which it is.
func (m *Mapper) RestoredID(of Restored, e Endpoint) ID {
	id := of.ID
	id.Cluster = cmp.Or(id.Cluster, e.Labels[labelCluster], defaultCluster)
	return m.idOf(id)
}

const labelCluster = "cluster"

const defaultCluster = "DEFAULT"

// Endpoint is where a service can be called.
type Endpoint struct {
	Address  string // an IP address, or a host
	Port     uint32
	Cluster  string // empty if it is not known
	Weight   uint32
	Labels   map[string]string
	Locality string
}

// Compare orders endpoints. Those that compare equal are the same endpoint.
func (e Endpoint) Compare(o Endpoint) int {
	return cmp.Or(cmp.Compare(e.Address, o.Address), cmp.Compare(e.Port, o.Port), cmp.Compare(e.Cluster, o.Cluster))
}

// Nacos' weights are fractions, 1 where nothing is set; Istio's are whole.
const (
	weightUnit = 100
	maxWeight  = 1_000_000
)

// Endpoint returns what an instance is, whether it is served or not. An error says why it cannot be called.
func (m *Mapper) Endpoint(i client.Instance) (Endpoint, error) {
	address, err := names.Address(i.IP)
	if err != nil {
		return Endpoint{}, fmt.Errorf("instance %s: %w", strconv.Quote(strings.ToValidUTF8(i.IP, "?")), err)
	}
	if i.Port == 0 {
		return Endpoint{}, fmt.Errorf("instance %s has no port", i.IP)
	}
	e := Endpoint{Address: address, Port: uint32(i.Port), Cluster: cmp.Or(i.Cluster, defaultCluster), Labels: map[string]string{}} //nolint:gosec // 1 to 65535
	if i.Weight > 0 {
		e.Weight = uint32(min(max(math.Round(i.Weight*weightUnit), 1), maxWeight))
	}
	if names.IsLabelText(e.Cluster) {
		e.Labels[labelCluster] = e.Cluster
	}
	for _, key := range m.o.LabelMeta {
		if value := i.Metadata[key]; names.IsLabelText(value) {
			e.Labels[key] = value
		}
	}
	var locality []string
	for _, key := range []string{"region", "zone"} {
		// A part that is missing or cannot be one ends it, as Istio's hierarchy does.
		if !names.IsLabelText(i.Metadata[key]) {
			break
		}
		locality = append(locality, i.Metadata[key])
	}
	e.Locality = strings.Join(locality, "/")
	return e, nil
}

// PortOf returns the port of a service, given all its instances, healthy or not: it depends on nothing else, so that all replicas have the
// same one. Without any it is what it was before, which is zero if it was none.
func (m *Mapper) PortOf(all []client.Instance, before Port) Port {
	ports := entry.NewPorts(m.o.ServicePort)
	for _, i := range all {
		wanted, err := strconv.ParseUint(i.Metadata[m.o.ServicePortMeta], 10, 16)
		if err != nil {
			wanted = 0
		}
		ports.Add(uint32(max(0, i.Port)), uint32(wanted), m.protocolOf(i)) //nolint:gosec // up to 65535
	}
	return ports.Port(before)
}

// protocolOf returns Istio's name of an instance's protocol. Spring Cloud says that an instance is one of its own, and these speak HTTP,
// with TLS where they are secure (NacosServiceDiscovery.hostToServiceInstance).
func (m *Mapper) protocolOf(i client.Instance) string {
	said := i.Metadata[m.o.ProtocolMeta]
	if said == "" && i.Metadata["preserved.register.source"] == "SPRING_CLOUD" {
		said = "http"
		if names.IsTrue(i.Metadata["secure"]) {
			said = "https"
		}
	}
	return entry.Protocol(said, m.o.DefaultProtocol)
}

// Service is one host of the mesh.
type Service struct {
	ID        ID
	Name      Name
	Place     string // for people
	Port      Port
	Endpoints []Endpoint // with a weight
}

// The annotations that say of which service of Nacos a ServiceEntry is.
const (
	annotationGroup   = "tributary/nacos-group"
	annotationService = "tributary/nacos-service"
	annotationCluster = "tributary/nacos-cluster"
)

// Entry returns the ServiceEntry of a service, or none of one that never had an instance: nobody knows its port.
func (m *Mapper) Entry(s Service) (r *resource.Resource, warnings []string, err error) {
	e := entry.Entry{
		ID: s.ID.String(), Place: s.Place, Host: s.Name.Host, Object: s.Name.object, Namespace: m.o.Namespace, Port: s.Port, VIPs: m.vips,
		Which:       m.o.VIPs,
		Annotations: map[string]string{annotationGroup: s.ID.Group, annotationService: s.ID.Service},
	}
	if s.ID.Cluster != "" {
		e.Annotations[annotationCluster] = s.ID.Cluster
	}
	endpoints := slices.SortedFunc(slices.Values(s.Endpoints), Endpoint.Compare)
	for _, one := range slices.CompactFunc(endpoints, func(a, b Endpoint) bool { return a.Address == b.Address && a.Port == b.Port }) {
		e.Endpoint(one.Address, one.Port, one.Weight, one.Labels, one.Locality)
	}
	return e.Resource()
}

// Restored is what a ServiceEntry says of the service that it was made of. Of its endpoints the cluster is known only if it is one of ID.
type Restored struct {
	ID        ID
	Port      Port
	Endpoints []Endpoint // in order
}

// Restore reads what Entry made. What is not of its making is passed over.
func Restore(rs []*resource.Resource) (all []Restored) {
	for _, r := range rs {
		a := r.Annotations()
		se, port, ok := entry.Read(r)
		if !ok || a[annotationService] == "" {
			continue
		}
		one := Restored{ID: ID{a[annotationGroup], a[annotationService], a[annotationCluster]}, Port: port}
		for _, e := range se.Endpoints {
			one.Endpoints = append(one.Endpoints, Endpoint{
				Address: e.Address, Port: e.Ports[se.Ports[0].Name], Cluster: one.ID.Cluster, // no label: not each name of a cluster can be one
				Weight: e.Weight, Labels: e.Labels, Locality: e.Locality,
			})
		}
		slices.SortFunc(one.Endpoints, Endpoint.Compare)
		all = append(all, one)
	}
	return all
}
