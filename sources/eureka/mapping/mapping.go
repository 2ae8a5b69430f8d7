// Package mapping turns the instances of a Eureka into Istio's ServiceEntries. It is pure: no I/O, no clock, no memory. What it makes is
// valid, whatever is in a Eureka, and is the same for the same content, in whatever order that comes.
package mapping

import (
	"cmp"
	"slices"
	"strings"

	"tributary/resource"
	"tributary/sources/registry/entry"
)

// VIPs gives hosts virtual addresses.
type VIPs = entry.VIPs

// Port is how clients find a service.
type Port = entry.Port

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

// Service is one port of a host of the mesh, with all that serve it. Plain and secure ports are services of their own, since not all
// instances have both.
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
	e := entry.Entry{
		ID: s.ID.String(), Place: s.Place, Host: s.Name.Host, Object: s.Name.base, Namespace: m.o.Namespace, Port: s.Port, VIPs: m.vips,
		Which:       m.o.VIPs,
		Annotations: map[string]string{},
	}
	var instances []string // in the order of the endpoints
	endpoints := slices.SortedFunc(slices.Values(s.Endpoints), Endpoint.Compare)
	for _, one := range slices.CompactFunc(endpoints, func(a, b Endpoint) bool { return a.Compare(b) == 0 }) {
		instances = append(instances, string(one.Instance))
		e.Endpoint(one.Address, one.Port, 0, one.Labels, one.Locality)
	}
	for key, value := range map[string]string{
		annotationVIP: s.ID.VIP, annotationApp: s.ID.App, annotationApps: strings.Join(s.Apps, ","),
		annotationInstances: strings.Join(instances, ","),
	} {
		if value != "" {
			e.Annotations[key] = value
		}
	}
	if s.Secure {
		e.Object, e.Annotations[annotationSecure] = e.Object+secureSuffix, "true"
	}
	return e.Resource()
}

// Restore reads what Entry made. What is not of its making is passed over.
func Restore(rs []*resource.Resource) (all []Service) {
	for _, r := range rs {
		a := r.Annotations()
		se, port, ok := entry.Read(r)
		if !ok || cmp.Or(a[annotationVIP], a[annotationApp]) == "" {
			continue
		}
		one := Service{ID: ID{a[annotationVIP], a[annotationApp]}, Secure: a[annotationSecure] != "", Place: r.Origin().Place, Port: port}
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
