// Package mapping turns the instances of a Eureka into Istio's ServiceEntries. It is pure: no I/O, no clock, no memory. What it makes is
// valid, whatever is in a Eureka, and is the same for the same content, in whatever order that comes.
package mapping

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"tributary/resource"
	"tributary/sources/registry"
)

// Mapper maps instances. It is safe for concurrent use.
type Mapper struct {
	registry.Hosts[ID]

	o Options
}

var _ registry.Mapping[ID] = (*Mapper)(nil)

// New returns a mapper. Without vips no service gets a virtual address. An error begins with the key at fault.
func New(o Options, vips registry.VIPs) (*Mapper, error) {
	o = o.WithDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	naming := registry.Naming[ID]{Joint: "-", Spare: len(secureSuffix), Parts: ID.parts}
	return &Mapper{registry.NewHosts(o.MappingOptions, vips, naming, ID.place), o}, nil
}

// ID is what services are told apart by: hosts, and of these the plain and the secure port, since not all instances have both. App is empty
// if hosts do not tell applications apart, and VIP if they tell nothing else apart.
type ID struct {
	VIP, App string
	Secure   bool
}

// Compare orders IDs.
func (id ID) Compare(o ID) int {
	plainFirst := func(id ID) string { return strconv.FormatBool(id.Secure) }
	return cmp.Or(cmp.Compare(id.VIP, o.VIP), cmp.Compare(id.App, o.App), cmp.Compare(plainFirst(id), plainFirst(o)))
}

// Group is that of the host, with both ports. It is different for each.
func (id ID) Group() string {
	if id.App == "" {
		return url.QueryEscape(id.VIP)
	}
	return url.QueryEscape(id.VIP) + "@" + url.QueryEscape(id.App)
}

func (id ID) String() string { return id.Group() }

func (id ID) parts() []registry.Part {
	return slices.DeleteFunc([]registry.Part{
		{Placeholder: "{vip}", Text: id.VIP, Dots: true, Annotation: annotationVIP},
		{Placeholder: "{app}", Text: id.App, Annotation: annotationApp},
	}, func(p registry.Part) bool { return p.Text == "" })
}

func (id ID) place() string {
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

// Host implements registry.Mapping.
func (m *Mapper) Host(id ID) ID { return ID{VIP: id.VIP, App: id.App} }

// secureSuffix is that of the object with the secure port. The name of no other one has a dot.
const secureSuffix = ".secure"

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
	annotations := map[string]string{annotationApps: strings.Join(s.Owners, ","), annotationInstances: strings.Join(instances, ",")}
	if s.ID.Secure {
		s.Name.Object += secureSuffix
		annotations[annotationSecure] = "true"
	}
	return m.Entry(s, annotations)
}

// Restore implements registry.Mapping. Where another template did not tell applications apart, the first one stands for all; where it did
// not tell anything else apart, an application is called by its name, as is usual.
func (m *Mapper) Restore(published []*resource.Resource) []registry.Service[ID] {
	return registry.Restored(published, func(a map[string]string, s registry.Service[ID]) []registry.Service[ID] {
		app := a[annotationApp]
		if apps := a[annotationApps]; apps != "" {
			s.Owners = strings.Split(apps, ",")
			app = cmp.Or(app, s.Owners[0])
		}
		s.ID = m.idOf(cmp.Or(a[annotationVIP], app), app)
		s.ID.Secure = a[annotationSecure] != ""
		if instances := strings.Split(a[annotationInstances], ","); len(instances) == len(s.Endpoints) {
			for n := range s.Endpoints {
				s.Endpoints[n].Instance = instances[n]
			}
		}
		return []registry.Service[ID]{s}
	}, annotationVIP, annotationApp)
}
