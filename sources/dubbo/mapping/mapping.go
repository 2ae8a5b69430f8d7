// Package mapping turns Dubbo's providers into Istio's ServiceEntries. It is pure: no I/O, no clock, no memory. What it makes is valid,
// whatever is in a registry, and is the same for the same content, in whatever order that comes.
package mapping

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/internal/names"
	"tributary/resource"
	"tributary/sources/dubbo/provider"
	core "tributary/sources/registry"
)

// VIPs gives hosts virtual addresses.
type VIPs = core.VIPs

// Mapper maps services. It is safe for concurrent use.
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

// Service is one host of the mesh.
type Service struct {
	ID        provider.ID // see Mapper.ServiceOf
	Name      Name
	Place     string   // where it is in the registry, for people
	Protocols []string // that it has, or had: one without an endpoint is a ServiceEntry without any
	Endpoints []Endpoint
}

// Endpoint is where a service can be called.
type Endpoint struct {
	Protocol       string
	Address        string // an IP address, or a host
	Port           uint32
	Weight         uint32 // at least 1
	Labels         map[string]string
	Locality       string
	ServiceAccount string

	// Application and Levels say who registers it, and where: what cannot be read there says nothing about it.
	Application string
	Levels      provider.Levels
}

// Compare orders endpoints. Those that compare equal are the same endpoint.
func (e Endpoint) Compare(o Endpoint) int {
	return cmp.Or(cmp.Compare(e.Protocol, o.Protocol), cmp.Compare(e.Address, o.Address), cmp.Compare(e.Port, o.Port))
}

func (e Endpoint) named() bool { return core.Named(e.Address) }

// Endpoint returns the endpoint that a provider is. It is none if it has no weight, or was switched off, or cannot be called; then
// problem says why, unless that is as somebody wanted it.
func (m *Mapper) Endpoint(p provider.Provider) (e Endpoint, ok bool, problem string) {
	address, err := names.Address(p.Host)
	if err != nil {
		return Endpoint{}, false, err.Error()
	}
	e = Endpoint{
		Protocol: p.Protocol, Address: address, Port: uint32(p.Port), Weight: p.Weight(),
		Labels: m.labelsOf(p), Locality: localityOf(p), ServiceAccount: m.serviceAccountOf(p),
		Application: Application(p.Application), Levels: p.Levels,
	}
	return e, e.Weight > 0, ""
}

// Application returns the name of an application as endpoints have it.
func Application(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

// The annotations that say of which service of Dubbo a ServiceEntry is, and of which applications its endpoints are. Labels cannot say
// that: not every name can be one.
const (
	annotationInterface    = "tributary/dubbo-interface"
	annotationGroup        = "tributary/dubbo-group"
	annotationVersion      = "tributary/dubbo-version"
	annotationProtocol     = "tributary/dubbo-protocol"
	annotationApplications = "tributary/dubbo-applications"
)

// Entries returns the ServiceEntries of a service: one for each protocol, all of the same host, since instances need not have every
// protocol, and to Istio an endpoint that lacks a port of its ServiceEntry has that port all the same, as the service's own.
func (m *Mapper) Entries(s Service) (rs []*resource.Resource, warnings []string, err error) {
	if !utf8.ValidString(s.ID.Interface + s.ID.Group + s.ID.Version) {
		return nil, nil, fmt.Errorf("%s: its name is not valid UTF-8", strings.ToValidUTF8(s.Place, "?"))
	}
	if s.Name == (Name{}) {
		return nil, nil, fmt.Errorf("%s: there is no name left for it", s.Place)
	}
	protocols := slices.Clone(s.Protocols)
	endpoints := slices.SortedFunc(slices.Values(s.Endpoints), Endpoint.Compare)
	endpoints = slices.CompactFunc(endpoints, func(a, b Endpoint) bool { return a.Compare(b) == 0 })
	for _, e := range endpoints {
		protocols = append(protocols, e.Protocol)
	}
	slices.Sort(protocols)
	ports, left := m.ports(slices.Compact(protocols))
	if len(left) > 0 {
		some := left[:min(3, len(left))]
		warnings = append(warnings, fmt.Sprintf("%s: %d protocols are left out, %s among them: a service has at most %d",
			s.Place, len(left), provider.Shorten(strings.Join(some, ", ")), maxProtocols))
	}
	addresses, warned := core.Address(m.vips, m.o.VIPs, s.Name.Host, s.Place, slices.ContainsFunc(ports, port.needsAddress))
	warnings = append(warnings, warned...)
	// istiod merges the ServiceEntries of a host only if these have one resolution. DNS takes IP addresses too.
	dns := slices.ContainsFunc(endpoints, Endpoint.named)
	for _, p := range ports {
		se := &networking.ServiceEntry{
			Hosts: []string{s.Name.Host}, Addresses: addresses,
			Location: networking.ServiceEntry_MESH_INTERNAL, Resolution: networking.ServiceEntry_STATIC,
			Ports: []*networking.ServicePort{{Number: p.number, Name: p.name, Protocol: p.protocol}},
		}
		var applications []string
		for _, e := range endpoints {
			if e.Protocol == p.of {
				applications = append(applications, e.Application)
				se.Endpoints = append(se.Endpoints, &networking.WorkloadEntry{
					Address: e.Address, Ports: map[string]uint32{p.name: e.Port}, Weight: e.Weight,
					Labels: maps.Clone(e.Labels), Locality: e.Locality, ServiceAccount: e.ServiceAccount,
				})
			}
		}
		if dns && len(se.Endpoints) == 0 {
			// With DNS and without endpoints the host itself would be one; with STATIC it would not be merged.
			warnings = append(warnings, fmt.Sprintf("%s: protocol %s has no provider, while others are known by name: it is left out", s.Place,
				p.of))
			continue
		}
		if dns {
			se.Resolution = networking.ServiceEntry_DNS
		}
		r, err := resource.New(resource.Meta{
			Key:         resource.Key{Kind: resource.ServiceEntry, Namespace: m.o.Namespace, Name: s.Name.object(p.of)},
			Annotations: m.annotations(s.ID, p.of, applications, se.Endpoints),
			Origin:      resource.Origin{Place: strings.ToValidUTF8(s.Place, "?")},
		}, se)
		if err != nil {
			return nil, nil, err
		}
		rs = append(rs, r)
	}
	return rs, warnings, nil
}

func (m *Mapper) annotations(id provider.ID, protocol string, applications []string,
	endpoints []*networking.WorkloadEntry,
) map[string]string {
	a := map[string]string{annotationInterface: id.Interface, annotationProtocol: protocol}
	for _, part := range []struct{ key, value, label, placeholder string }{
		{annotationGroup, id.Group, "group", "{group}"}, {annotationVersion, id.Version, "version", "{version}"},
	} {
		// A service of none, of which endpoints have that label all the same, says that it is of none: see Services.
		labelled := func(e *networking.WorkloadEntry) bool { return e.Labels[part.label] != "" }
		if part.value != "" || strings.Contains(m.o.HostTemplate, part.placeholder) && slices.ContainsFunc(endpoints, labelled) {
			a[part.key] = part.value
		}
	}
	if text := runs(applications); text != "" {
		a[annotationApplications] = text
	}
	return a
}

// Restored is what a ServiceEntry that this package made earlier says.
type Restored struct {
	ID        provider.ID
	Protocol  string
	Endpoints []Endpoint

	group, version bool // it says that it is of that group or version, or of none
}

// Services returns what ServiceEntries say by service, as the template tells services apart now. What another template did not tell apart
// is known by the labels of endpoints.
func (m *Mapper) Services(all []Restored) map[provider.ID][]Restored {
	by := map[provider.ID][]Restored{}
	for _, one := range all {
		id := m.ServiceOf(one.ID)
		parts := map[provider.ID][]Endpoint{}
		if len(one.Endpoints) == 0 {
			parts[id] = nil
		}
		for _, e := range one.Endpoints {
			of := one.ID
			if !one.group {
				of.Group = e.Labels["group"]
			}
			if !one.version {
				of.Version = e.Labels["version"]
			}
			of = m.ServiceOf(of)
			parts[of] = append(parts[of], e)
		}
		for of, endpoints := range parts {
			by[of] = append(by[of], Restored{ID: of, Protocol: one.Protocol, Endpoints: endpoints})
		}
	}
	return by
}

// Restore reads ServiceEntries that this package made earlier, such as those that a sink holds when a source starts.
func Restore(rs []*resource.Resource) []Restored {
	var all []Restored
	for _, r := range rs {
		a := r.Annotations()
		spec, err := r.Spec()
		se, ok := spec.(*networking.ServiceEntry)
		if err != nil || !ok || a[annotationInterface] == "" || a[annotationProtocol] == "" || len(se.Ports) != 1 {
			continue
		}
		one := Restored{
			ID:       provider.ID{Interface: a[annotationInterface], Group: a[annotationGroup], Version: a[annotationVersion]},
			Protocol: a[annotationProtocol],
		}
		_, one.group = a[annotationGroup]
		_, one.version = a[annotationVersion]
		applications := ofRuns(a[annotationApplications], len(se.Endpoints))
		for n, e := range se.Endpoints {
			one.Endpoints = append(one.Endpoints, Endpoint{
				Protocol: one.Protocol, Address: e.Address, Port: e.Ports[se.Ports[0].Name], Weight: e.Weight, Labels: e.Labels,
				Locality: e.Locality, ServiceAccount: e.ServiceAccount,
				Application: applications[n], Levels: provider.OfInterfaces | provider.OfApplications, // one or both
			})
		}
		all = append(all, one)
	}
	return all
}
