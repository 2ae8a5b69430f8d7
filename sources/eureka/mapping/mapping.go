// Package mapping turns the instances of a Eureka into Istio's ServiceEntries. It is pure: no I/O, no clock, no memory. What it makes is valid,
// whatever is in a Eureka, and is the same for the same content, in whatever order that comes.
package mapping

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	networking "istio.io/api/networking/v1alpha3"
	"istio.io/istio/pkg/config/protocol"

	"tributary/resource"
)

// VIPs gives hosts virtual addresses: the same host always the same one. See package vip.
type VIPs interface {
	Address(host string) (netip.Addr, error)
}

// Mapper maps instances. It is safe for concurrent use.
type Mapper struct {
	o    Options
	vips VIPs
}

// New returns a mapper. Without vips no service gets a virtual address. An error begins with the key at fault.
func New(o Options, vips VIPs) (*Mapper, error) {
	o = o.WithDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	return &Mapper{o: o, vips: vips}, nil
}

// Service is one port of a host of the mesh, with all that serve it. Plain and secure ports are services of their own, since not all instances have both.
type Service struct {
	ID        ID
	Secure    bool
	Name      Name
	Place     string // for people
	Apps      []string
	Port      Port
	Endpoints []Endpoint
}

// The annotations that say of what in a Eureka a ServiceEntry is.
const (
	annotationVIP       = "tributary/eureka-vip"
	annotationApp       = "tributary/eureka-app"  // where it tells hosts apart
	annotationApps      = "tributary/eureka-apps" // whose instances it has
	annotationInstances = "tributary/eureka-instances"
	annotationSecure    = "tributary/eureka-secure"
)

// Entry returns the ServiceEntry of a service, or none of one that never had an instance: nobody knows its port.
func (m *Mapper) Entry(s Service) (r *resource.Resource, warnings []string, err error) {
	if !utf8.ValidString(s.ID.String()) {
		return nil, nil, fmt.Errorf("%s: its name is not valid UTF-8", strings.ToValidUTF8(s.Place, "?"))
	}
	if s.Port.Number == 0 {
		return nil, nil, nil
	}
	if s.Name == (Name{}) {
		return nil, nil, fmt.Errorf("%s: there is no name left for it", s.Place)
	}
	endpoints := slices.SortedFunc(slices.Values(s.Endpoints), Endpoint.Compare)
	endpoints = slices.CompactFunc(endpoints, func(a, b Endpoint) bool { return a.Compare(b) == 0 })
	is := protocol.Parse(s.Port.Protocol)
	name := strings.ToLower(string(is))
	se := &networking.ServiceEntry{
		Hosts: []string{s.Name.Host}, Location: networking.ServiceEntry_MESH_INTERNAL, Resolution: networking.ServiceEntry_STATIC,
		Ports: []*networking.ServicePort{{Number: s.Port.Number, Name: name, Protocol: string(is)}},
	}
	if m.vips != nil && (m.o.VIPs == vipsAll || m.o.VIPs == vipsTCP && !is.IsHTTP() && !is.IsTLS()) {
		if vip, err := m.vips.Address(s.Name.Host); err != nil {
			warnings = append(warnings, s.Place+": no virtual address: "+err.Error())
		} else {
			se.Addresses = []string{vip.String()}
		}
	}
	if slices.ContainsFunc(endpoints, Endpoint.named) { // DNS takes IP addresses too
		se.Resolution = networking.ServiceEntry_DNS
	}
	instances := make([]string, 0, len(endpoints)) // in the order of the endpoints
	for _, e := range endpoints {
		instances = append(instances, string(e.Instance))
		se.Endpoints = append(se.Endpoints, &networking.WorkloadEntry{
			Address: e.Address, Ports: map[string]uint32{name: e.Port}, Labels: maps.Clone(e.Labels), Locality: e.Locality,
		})
	}
	object, annotations := s.Name.base, map[string]string{}
	for key, value := range map[string]string{
		annotationVIP: s.ID.VIP, annotationApp: s.ID.App, annotationApps: strings.Join(s.Apps, ","), annotationInstances: strings.Join(instances, ","),
	} {
		if value != "" {
			annotations[key] = value
		}
	}
	if s.Secure {
		object, annotations[annotationSecure] = object+secureSuffix, "true"
	}
	r, err = resource.New(resource.Meta{
		Key:         resource.Key{Kind: resource.ServiceEntry, Namespace: m.o.Namespace, Name: object},
		Annotations: annotations,
		Origin:      resource.Origin{Place: strings.ToValidUTF8(s.Place, "?")},
	}, se)
	if err != nil {
		return nil, warnings, fmt.Errorf("%s: %w", s.Place, err)
	}
	return r, warnings, nil
}

// Restore reads what Entry made. What is not of its making is passed over.
func Restore(rs []*resource.Resource) (all []Service) {
	for _, r := range rs {
		a := r.Annotations()
		spec, err := r.Spec()
		se, ok := spec.(*networking.ServiceEntry)
		if err != nil || !ok || cmp.Or(a[annotationVIP], a[annotationApp]) == "" || len(se.Ports) != 1 {
			continue
		}
		one := Service{
			ID: ID{a[annotationVIP], a[annotationApp]}, Secure: a[annotationSecure] != "", Place: r.Origin().Place,
			Port: Port{se.Ports[0].Number, se.Ports[0].Protocol},
		}
		if apps := a[annotationApps]; apps != "" {
			one.Apps = strings.Split(apps, ",")
		}
		instances := strings.Split(a[annotationInstances], ",")
		for n, e := range se.Endpoints {
			endpoint := Endpoint{Address: e.Address, Port: e.Ports[se.Ports[0].Name], Labels: e.Labels, Locality: e.Locality}
			if len(instances) == len(se.Endpoints) {
				endpoint.Instance = Instance(instances[n])
			}
			one.Endpoints = append(one.Endpoints, endpoint)
		}
		slices.SortFunc(one.Endpoints, Endpoint.Compare)
		all = append(all, one)
	}
	return all
}
