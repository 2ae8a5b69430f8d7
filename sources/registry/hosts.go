package registry

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"istio.io/istio/pkg/config/protocol"

	"tributary/internal/names"
	"tributary/resource"
)

// Part is a part of the name of a service.
type Part struct {
	Placeholder string // the placeholder in the host template, with its braces
	Text        string // if it is empty, the placeholder goes with the dash or dot before it
	Dots        bool   // its dots separate labels of the host; otherwise they become dashes
	Hidden      bool   // the name of the object does not contain it
	Annotation  string // the key of the object's annotation with it; empty if there is none
}

// Naming makes the names of services from their parts. The first part is never empty. Names of registries are no hosts:
// names that differ only in case, dots or dashes may become the same host. Then the service with the name nearest to
// the host gets it.
type Naming[ID ServiceID[ID]] struct {
	Template string
	AnyHost  bool   // a service may have a host of a cluster; see CheckHost
	Joint    string // between the parts of the name of an object
	Spare    int    // characters at the end of the name of an object that the mapping adds itself
	Parts    func(ID) []Part
}

var placeholder = regexp.MustCompile(`[-.]?\{[^{}]*\}`)

// Names implements Mapping.
func (n Naming[ID]) Names(hosts []ID) map[ID]Name {
	distance := func(id ID) (sum int) {
		for _, p := range n.Parts(id) {
			sum += names.Distance(p.Text)
		}
		return sum
	}
	compare := func(a, b ID) int { return cmp.Or(cmp.Compare(distance(a), distance(b)), a.Compare(b)) }
	return names.Distinct(hosts, compare, func(id ID, toHash string) (name Name, host, object string) {
		name = n.name(id, toHash)
		return name, name.Host, name.Object
	})
}

// name returns the name of a service. A hash of toHash makes it unique.
func (n Naming[ID]) name(id ID, toHash string) Name {
	values, object := map[string]string{}, []string{}
	for index, part := range n.Parts(id) {
		labels, text := names.Parts(part.Text), part.Text
		if index == 0 {
			text = id.String()
		}
		if len(labels) == 0 && text != "" {
			labels = []string{names.Hashed("", text, names.MaxLabel)}
		}
		if index == 0 && toHash != "" {
			last := len(labels) - 1
			labels[last] = names.Hashed(labels[last], toHash, names.MaxLabel)
		}
		dashes := strings.Join(labels, "-")
		if values[part.Placeholder] = dashes; part.Dots {
			values[part.Placeholder] = strings.Join(labels, ".")
		}
		if dashes != "" && !part.Hidden {
			object = append(object, dashes)
		}
	}
	host := placeholder.ReplaceAllStringFunc(n.Template, func(pattern string) string {
		begin := strings.IndexByte(pattern, '{')
		if value := values[pattern[begin:]]; value != "" {
			return pattern[:begin] + value
		}
		return ""
	})
	return Name{
		Host:   names.FitHost(host, id.String()+toHash),
		Object: names.Fit(strings.Join(object, n.Joint), id.String()+toHash, names.MaxName-n.Spare),
	}
}

// clusterHost matches the host of a Kubernetes Service: NAME.NAMESPACE.svc, alone or with a cluster's domain. A domain
// that is not private ends in two to four letters and has another label: names in Java packages, such as
// com.acme.svc.OrderService, seldom do.
var clusterHost = regexp.MustCompile(`^[^.]+\.[^.]+(\.[^.]+)*\.svc(\..+\.(local|internal))?$|` +
	`^[^.]+\.[^.]+\.svc\..+\.[a-z]{2,4}$`)

// CheckHost returns an error for a service that can have no object, or that was registered with the host of a
// Kubernetes Service. The template's text after its last placeholder is the operator's choice and allows any host below
// it, unless the registrant could complete it to the default domain.
func (n Naming[ID]) CheckHost(place string, id ID, host string) error {
	switch {
	case !utf8.ValidString(id.String()):
		return fmt.Errorf("%s: its name is not valid UTF-8", strings.ToValidUTF8(place, "?"))
	case host == "":
		return fmt.Errorf("%s: there is no name left for it", place)
	}
	suffix := n.Template[strings.LastIndexByte(n.Template, '}')+1:]
	if n.AnyHost || !strings.HasSuffix(".cluster.local", suffix) || !clusterHost.MatchString(host) {
		return nil
	}
	return fmt.Errorf("%s: its host %s is one of a Kubernetes cluster: set hosts: any if the registry may name these, "+
		"or end hostTemplate in a domain", place, host)
}

// Hosts is a Mapping, apart from Restore, of services that are hosts with one port each.
type Hosts[ID ServiceID[ID]] struct {
	Naming[ID]
	MappingOptions

	vips  VIPs
	place func(ID) string
}

// NewHosts returns a mapping with checked options. naming needs no template. place names the place of a service in
// messages. Without vips no service gets a virtual address.
func NewHosts[ID ServiceID[ID]](o MappingOptions, vips VIPs, naming Naming[ID], place func(ID) string) Hosts[ID] {
	naming.Template, naming.AnyHost = o.HostTemplate, o.Hosts == AnyHosts
	return Hosts[ID]{naming, o, vips, place}
}

// Host implements Mapping.
func (h Hosts[ID]) Host(id ID) ID { return id }

// Place implements Mapping.
func (h Hosts[ID]) Place(id ID) string { return h.place(id) }

// ServicePort implements Mapping.
func (h Hosts[ID]) ServicePort(ID) int { return h.MappingOptions.ServicePort }

// Entries implements Mapping.
func (h Hosts[ID]) Entries(host []Service[ID]) (rs []*resource.Resource, warnings []string, err error) {
	r, warnings, err := h.Entry(host[0], map[string]string{})
	return []*resource.Resource{r}, warnings, err
}

// Entry returns the ServiceEntry of a service, or nil if its port is unknown since there never was an instance. It adds
// the annotations of the service's parts, and leaves out annotations without a value.
func (h Hosts[ID]) Entry(service Service[ID], annotations map[string]string) (
	object *resource.Resource, warnings []string, err error,
) {
	place, parsed := h.place(service.ID), protocol.Parse(service.Port.Protocol)
	if service.Port.Number == 0 {
		return nil, nil, nil
	}
	if err := h.CheckHost(place, service.ID, service.Name.Host); err != nil {
		return nil, nil, err
	}
	for _, p := range h.Parts(service.ID) {
		annotations[p.Annotation] = p.Text
	}
	maps.DeleteFunc(annotations, func(key, value string) bool { return key == "" || value == "" })
	serviceEntry := ServiceEntry(service.Name.Host, service.Port.Number, service.Port.Name(), string(parsed),
		service.Endpoints)
	serviceEntry.Addresses, warnings = Address(h.vips, h.VIPs, service.Name.Host, place,
		!parsed.IsHTTP() && !parsed.IsTLS())
	object, err = resource.New(resource.Meta{
		Key:         resource.Key{Kind: resource.ServiceEntry, Namespace: h.Namespace, Name: service.Name.Object},
		Annotations: annotations,
		Origin:      resource.Origin{Place: strings.ToValidUTF8(place, "?")},
	}, serviceEntry)
	if err != nil {
		return nil, warnings, fmt.Errorf("%s: %w", place, err)
	}
	return object, warnings, nil
}

// Restored reads objects of Hosts: those with one of the annotations. split returns the services of an object; s has
// its port and endpoints.
func Restored[ID any](
	published []*resource.Resource, split func(annotations map[string]string, s Service[ID]) []Service[ID],
	annotations ...string,
) (services []Service[ID]) {
	for _, r := range published {
		a := r.Annotations()
		endpoints, port, ok := ReadEntry(r)
		if ok && slices.ContainsFunc(annotations, func(key string) bool { return a[key] != "" }) {
			services = append(services, split(a, Service[ID]{Port: port, Endpoints: endpoints})...)
		}
	}
	return services
}

// Split returns one service for each endpoint of s, with the ID that id returns for the endpoint. Without endpoints, id
// gets an empty one.
func (s Service[ID]) Split(id func(Endpoint) ID) (services []Service[ID]) {
	for n, e := range s.Endpoints {
		services = append(services, Service[ID]{ID: id(e), Port: s.Port, Endpoints: s.Endpoints[n : n+1]})
	}
	if len(services) == 0 {
		services = []Service[ID]{{ID: id(Endpoint{}), Port: s.Port}}
	}
	return services
}
