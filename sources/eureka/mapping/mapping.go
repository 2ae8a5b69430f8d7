// Package mapping turns the instances of a Eureka into Istio's ServiceEntries. It is pure: no I/O, no clock, no memory. What it makes is
// valid, whatever is in a Eureka, and is the same for the same content, in whatever order that comes.
package mapping

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"tributary/resource"
	"tributary/sources/registry"
)

// Mapper maps instances. It is safe for concurrent use.
type Mapper struct {
	o     Options
	maker registry.Maker
}

var _ registry.Mapping[ID] = (*Mapper)(nil)

// New returns a mapper. Without vips no service gets a virtual address. An error begins with the key at fault.
func New(o Options, vips registry.VIPs) (*Mapper, error) {
	o = o.WithDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	return &Mapper{o: o, maker: registry.Maker{Namespace: o.Namespace, VIPs: vips, Which: o.VIPs}}, nil
}

// Place implements registry.Mapping.
func (m *Mapper) Place(id ID) string {
	text := "eureka"
	if id.VIP != "" {
		text += " vip " + id.VIP
	}
	if id.App != "" {
		text += " app " + id.App
	}
	if id.Secure {
		text += " (secure)"
	}
	return text
}

// ServicePort implements registry.Mapping.
func (m *Mapper) ServicePort(id ID) int {
	if id.Secure {
		return m.o.SecureServicePort
	}
	return m.o.ServicePort
}

// The annotations that say of what in a Eureka a ServiceEntry is.
const (
	annotationVIP       = "tributary/eureka-vip"
	annotationApp       = "tributary/eureka-app"  // where it tells hosts apart
	annotationApps      = "tributary/eureka-apps" // whose instances it has
	annotationInstances = "tributary/eureka-instances"
	annotationSecure    = "tributary/eureka-secure"
)

// Entries implements registry.Mapping. If both ports of a host have one number, the plain one has it.
func (m *Mapper) Entries(host []registry.Service[ID]) (rs []*resource.Resource, warnings []string, err error) {
	for n, s := range host {
		if n > 0 && s.Port.Number != 0 && s.Port.Number == host[0].Port.Number {
			err = errors.Join(err, fmt.Errorf("%s: port %d is the service's plain one already", m.Place(s.ID), s.Port.Number))
			continue
		}
		r, warned, failed := m.entry(s)
		rs, warnings, err = append(rs, r), append(warnings, warned...), errors.Join(err, failed)
	}
	return rs, warnings, err
}

// entry returns the object of a service.
func (m *Mapper) entry(s registry.Service[ID]) (r *resource.Resource, warnings []string, err error) {
	var instances []string // in the order of the endpoints
	for _, e := range s.Endpoints {
		instances = append(instances, e.Instance)
	}
	annotations := map[string]string{
		annotationVIP: s.ID.VIP, annotationApp: s.ID.App, annotationApps: strings.Join(s.Owners, ","),
		annotationInstances: strings.Join(instances, ","),
	}
	if s.ID.Secure {
		s.Name.Object += secureSuffix
		annotations[annotationSecure] = "true"
	}
	return m.maker.Entry(s.ID.Group(), m.Place(s.ID), s.Name, s.Port, s.Endpoints, annotations)
}

// Restore implements registry.Mapping. Where another template did not tell applications apart, the first one stands for all; where it did
// not tell anything else apart, an application is called by its name, as is usual.
func (m *Mapper) Restore(published []*resource.Resource) (all []registry.Service[ID]) {
	for _, r := range published {
		a := r.Annotations()
		endpoints, port, ok := registry.ReadEntry(r)
		if !ok || cmp.Or(a[annotationVIP], a[annotationApp]) == "" {
			continue
		}
		one := registry.Service[ID]{Port: port, Endpoints: endpoints}
		app := a[annotationApp]
		if apps := a[annotationApps]; apps != "" {
			one.Owners = strings.Split(apps, ",")
			app = cmp.Or(app, one.Owners[0])
		}
		one.ID = m.idOf(cmp.Or(a[annotationVIP], app), app)
		one.ID.Secure = a[annotationSecure] != ""
		if instances := strings.Split(a[annotationInstances], ","); len(instances) == len(endpoints) {
			for n := range endpoints {
				endpoints[n].Instance = instances[n]
			}
		}
		all = append(all, one)
	}
	return all
}
