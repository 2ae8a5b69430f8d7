// Package mapping makes ServiceEntries of the instances of a Eureka. It is pure: no I/O, no clock, no memory. The same
// instances, in any order, give the same valid objects.
package mapping

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"tributary/internal/names"
	"tributary/resource"
	"tributary/sources/eureka/wire"
	"tributary/sources/registry"
)

// Options select and name services. Zero values stand for the defaults. HostTemplate has {vip}, an element of the
// instance's vipAddress, and {app}, its application; the default is {vip}.eureka. The default namespace is eureka, and
// the protocol of plain ports http.
type Options struct {
	registry.MappingOptions

	// AddressFrom selects the address of instances: ip or hostname. Default: ip.
	AddressFrom string
	// Statuses are the statuses of instances that are served. Default: UP.
	Statuses []string
	// SecureServicePort is the secure port of all services. Default: derived.
	SecureServicePort int
	// Region is the region of zones without one. Default: none.
	Region string
}

const (
	fromIP       = "ip"
	fromHostName = "hostname"
)

// WithDefaults returns the options with defaults for those that are not set.
func (o Options) WithDefaults() Options {
	o.MappingOptions = o.MappingOptions.WithDefaults("{vip}.eureka", "eureka", "http")
	o.AddressFrom = cmp.Or(o.AddressFrom, fromIP)
	if len(o.Statuses) == 0 {
		o.Statuses = []string{wire.Up}
	}
	return o
}

func (o Options) validate() error {
	if !strings.Contains(o.HostTemplate, "{vip}") && !strings.Contains(o.HostTemplate, "{app}") {
		return fmt.Errorf("hostTemplate: %q must contain {vip} or {app}, which distinguish services", o.HostTemplate)
	}
	if err := cmp.Or(o.Check("{vip}", "{app}"), registry.CheckPort("secureServicePort", o.SecureServicePort)); err != nil {
		return err
	}
	valid := []string{wire.Up, wire.Starting, wire.OutOfService, wire.Down, wire.Unknown}
	invalid := slices.IndexFunc(o.Statuses, func(status string) bool { return !slices.Contains(valid, status) })
	switch {
	case o.AddressFrom != fromIP && o.AddressFrom != fromHostName:
		return fmt.Errorf("addressFrom: want %s or %s, got %q", fromIP, fromHostName, o.AddressFrom)
	case invalid >= 0:
		return fmt.Errorf("statuses: want some of %s, got %q", strings.Join(valid, ", "), o.Statuses[invalid])
	case o.ServicePort != 0 && o.ServicePort == o.SecureServicePort:
		return fmt.Errorf("secureServicePort: %d is the servicePort", o.SecureServicePort)
	case o.Region != "" && !names.IsLabelText(o.Region):
		return fmt.Errorf("region: %q is none", o.Region)
	}
	return nil
}

// Mapper maps instances. It is safe for concurrent use.
type Mapper struct {
	registry.Hosts[ID]

	options Options
}

var _ registry.Mapping[ID] = (*Mapper)(nil)

// New returns a mapper. Without vips no service gets a virtual address. An error begins with the key at fault.
func New(options Options, vips registry.VIPs) (*Mapper, error) {
	options = options.WithDefaults()
	if err := options.validate(); err != nil {
		return nil, err
	}
	naming := registry.Naming[ID]{Joint: "-", Spare: len(secureSuffix), Parts: ID.parts}
	return &Mapper{registry.NewHosts(options.MappingOptions, vips, naming, ID.place), options}, nil
}

// ID identifies a service: a host, with its plain or its secure port. App is empty if hosts do not distinguish
// applications, and VIP if they distinguish neither.
type ID struct {
	VIP, App string
	Secure   bool
}

// Compare orders IDs, the plain port first.
func (id ID) Compare(other ID) int {
	secure, otherSecure := strconv.FormatBool(id.Secure), strconv.FormatBool(other.Secure)
	return cmp.Or(cmp.Compare(id.VIP, other.VIP), cmp.Compare(id.App, other.App), cmp.Compare(secure, otherSecure))
}

// Group returns the name of the host's group, which has both ports.
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
	}, func(part registry.Part) bool { return part.Text == "" })
}

func (id ID) place() string {
	words := []string{"eureka"}
	for _, part := range id.parts() {
		words = append(words, strings.Trim(part.Placeholder, "{}"), part.Text)
	}
	if id.Secure {
		words = append(words, "(secure)")
	}
	return strings.Join(words, " ")
}

// Host implements registry.Mapping.
func (m *Mapper) Host(id ID) ID { return ID{VIP: id.VIP, App: id.App} }

// ServicePort implements registry.Mapping.
func (m *Mapper) ServicePort(id ID) int {
	if id.Secure {
		return m.options.SecureServicePort
	}
	return m.options.ServicePort
}

// secureSuffix ends the name of the object with the secure port. Other names have no dot.
const secureSuffix = ".secure"

// The annotations of ServiceEntries.
const (
	annotationVIP       = "tributary/eureka-vip"
	annotationApp       = "tributary/eureka-app"  // if hosts distinguish applications
	annotationApps      = "tributary/eureka-apps" // the applications of the endpoints
	annotationInstances = "tributary/eureka-instances"
	annotationSecure    = "tributary/eureka-secure"
)

// Entries implements registry.Mapping. If both ports of a host have one number, the plain port gets it.
func (m *Mapper) Entries(host []registry.Service[ID]) (objects []*resource.Resource, warnings []string, err error) {
	for index, service := range host {
		if index > 0 && service.Port.Number != 0 && service.Port.Number == host[0].Port.Number {
			const message = "%s: port %d is the service's plain one already"
			err = errors.Join(err, fmt.Errorf(message, m.Place(service.ID), service.Port.Number))
			continue
		}
		var instances []string // in the order of the endpoints
		for _, endpoint := range service.Endpoints {
			instances = append(instances, endpoint.Instance)
		}
		annotations := map[string]string{
			annotationApps: strings.Join(service.Owners, ","), annotationInstances: strings.Join(instances, ","),
		}
		if service.ID.Secure {
			service.Name.Object += secureSuffix
			annotations[annotationSecure] = "true"
		}
		object, warned, failure := m.Entry(service, annotations)
		objects, warnings, err = append(objects, object), append(warnings, warned...), errors.Join(err, failure)
	}
	return objects, warnings, err
}

// Restore implements registry.Mapping. If an earlier template did not distinguish applications, the first application
// stands for all of them; if it did not distinguish virtual addresses either, the application's name is the virtual
// address.
func (m *Mapper) Restore(published []*resource.Resource) []registry.Service[ID] {
	type services = []registry.Service[ID]
	return registry.Restored(published, func(annotations map[string]string, service registry.Service[ID]) services {
		application := annotations[annotationApp]
		if owners := annotations[annotationApps]; owners != "" {
			service.Owners = strings.Split(owners, ",")
			application = cmp.Or(application, service.Owners[0])
		}
		service.ID = m.idOf(cmp.Or(annotations[annotationVIP], application), application)
		service.ID.Secure = annotations[annotationSecure] != ""
		if instances := strings.Split(annotations[annotationInstances], ","); len(instances) == len(service.Endpoints) {
			for index := range service.Endpoints {
				service.Endpoints[index].Instance = instances[index]
			}
		}
		return services{service}
	}, annotationVIP, annotationApp)
}
