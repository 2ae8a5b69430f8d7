// Package entry makes ServiceEntries of the hosts of registries whose hosts have one port each, and checks the options by which mappings
// make them. It is pure: no I/O, no clock, no memory.
package entry

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	networking "istio.io/api/networking/v1alpha3"
	"istio.io/istio/pkg/config/protocol"

	"tributary/internal/names"
	"tributary/resource"
)

// VIPs gives hosts virtual addresses: the same host always the same one. See package vip.
type VIPs interface {
	Address(host string) (netip.Addr, error)
}

// Which services get a virtual address: those whose protocol has no host in it, all, or none.
const (
	VIPsTCP  = "tcp"
	VIPsAll  = "all"
	VIPsNone = "none"
)

// Port is how clients find a service.
type Port struct {
	Number   uint32
	Protocol string // Istio's
}

// Name is that of the port in a ServiceEntry.
func (p Port) Name() string { return strings.ToLower(string(protocol.Parse(p.Protocol))) }

// Ports counts what the instances of a service say of its port, served or not. It depends on nothing else, so that all replicas have the
// same one.
type Ports struct {
	configured uint32
	own        map[uint32]int // of the instances
	wanted     map[uint32]int // for the service
	protocols  map[string]int
}

// NewPorts returns the count of no instances. configured is the port of all services; zero if there is none.
func NewPorts(configured int) *Ports {
	return &Ports{uint32(configured), map[uint32]int{}, map[uint32]int{}, map[string]int{}} //nolint:gosec // checked
}

// Add adds an instance with its own port, the one that it wants for the service, and its protocol. What is zero is not counted.
func (p *Ports) Add(own, wanted uint32, protocol string) {
	p.own[own]++
	p.wanted[wanted]++
	p.protocols[protocol]++
	delete(p.own, 0)
	delete(p.wanted, 0)
}

// Port returns the port of the service. Without instances it is what it was before, which is zero if it was none.
func (p *Ports) Port(before Port) Port {
	return Port{cmp.Or(p.configured, most(p.wanted), most(p.own), before.Number), cmp.Or(most(p.protocols), before.Protocol)}
}

// most returns what is there most often, the lowest of several, or the zero value.
func most[T cmp.Ordered](counts map[T]int) (best T) {
	for _, one := range slices.Sorted(maps.Keys(counts)) {
		if counts[one] > counts[best] {
			best = one
		}
	}
	return best
}

// Named reports whether an address is a host, and no IP address.
func Named(address string) bool { _, err := netip.ParseAddr(address); return err != nil }

// Entry is one port of a host, of which a ServiceEntry is made.
type Entry struct {
	ID, Place               string // of the service: in the registry, and for people
	Host, Object, Namespace string // in the mesh; empty if there is no name left
	Port                    Port
	Annotations             map[string]string
	Endpoints               []*networking.WorkloadEntry
	VIPs                    VIPs
	Which                   string // services get a virtual address
}

// Endpoint adds an endpoint.
func (e *Entry) Endpoint(address string, port, weight uint32, labels map[string]string, locality string) {
	e.Endpoints = append(e.Endpoints, &networking.WorkloadEntry{
		Address: address, Ports: map[string]uint32{e.Port.Name(): port}, Weight: weight, Labels: maps.Clone(labels), Locality: locality,
	})
}

// Resource returns the ServiceEntry, or none of a service that never had an instance: nobody knows its port.
func (e *Entry) Resource() (r *resource.Resource, warnings []string, err error) {
	switch {
	case !utf8.ValidString(e.ID):
		return nil, nil, fmt.Errorf("%s: its name is not valid UTF-8", strings.ToValidUTF8(e.Place, "?"))
	case e.Port.Number == 0:
		return nil, nil, nil
	case e.Host == "":
		return nil, nil, fmt.Errorf("%s: there is no name left for it", e.Place)
	}
	is := protocol.Parse(e.Port.Protocol)
	se := &networking.ServiceEntry{
		Hosts: []string{e.Host}, Location: networking.ServiceEntry_MESH_INTERNAL, Resolution: networking.ServiceEntry_STATIC,
		Ports:     []*networking.ServicePort{{Number: e.Port.Number, Name: e.Port.Name(), Protocol: string(is)}},
		Endpoints: e.Endpoints,
	}
	se.Addresses, warnings = Address(e.VIPs, e.Which, e.Host, e.Place, !is.IsHTTP() && !is.IsTLS())
	if slices.ContainsFunc(e.Endpoints, func(w *networking.WorkloadEntry) bool { return Named(w.Address) }) { // DNS takes IP addresses too
		se.Resolution = networking.ServiceEntry_DNS
	}
	r, err = resource.New(resource.Meta{
		Key:         resource.Key{Kind: resource.ServiceEntry, Namespace: e.Namespace, Name: e.Object},
		Annotations: e.Annotations,
		Origin:      resource.Origin{Place: strings.ToValidUTF8(e.Place, "?")},
	}, se)
	if err != nil {
		return nil, warnings, fmt.Errorf("%s: %w", e.Place, err)
	}
	return r, warnings, nil
}

// Address returns the virtual address of a host, if it gets one. hostless says that some protocol of it has no host in it.
func Address(vips VIPs, which, host, place string, hostless bool) (addresses, warnings []string) {
	if vips == nil || which != VIPsAll && (which != VIPsTCP || !hostless) {
		return nil, nil
	}
	vip, err := vips.Address(host)
	if err != nil {
		return nil, []string{place + ": no virtual address: " + err.Error()}
	}
	return []string{vip.String()}, nil
}

// Read returns what Resource made: the ServiceEntry and its port.
func Read(r *resource.Resource) (se *networking.ServiceEntry, port Port, ok bool) {
	spec, err := r.Spec()
	se, ok = spec.(*networking.ServiceEntry)
	if err != nil || !ok || len(se.Ports) != 1 {
		return nil, Port{}, false
	}
	return se, Port{se.Ports[0].Number, se.Ports[0].Protocol}, true
}

// Common are the options that mappings of registries share. An error of Check begins with the key at fault.
type Common struct {
	HostTemplate string
	Placeholder  *regexp.Regexp // a part of the template, which ends with one of Known
	Known        []string       // {names} of what the template is made of
	Namespace    string
	VIPs         string
	LabelsKey    string // the key of the option of Labels
	Labels       []string
}

// Check checks the options.
func (c Common) Check() error {
	for _, p := range c.Placeholder.FindAllString(c.HostTemplate, -1) {
		if name := p[strings.IndexByte(p, '{'):]; !slices.Contains(c.Known, name) {
			last := len(c.Known) - 1
			return fmt.Errorf("hostTemplate: unknown %s; known are %s and %s", name, strings.Join(c.Known[:last], ", "), c.Known[last])
		}
	}
	if example := c.Placeholder.ReplaceAllString(c.HostTemplate, "x"); !names.IsHost(example) {
		return fmt.Errorf("hostTemplate: %q makes no host: %q is none", c.HostTemplate, example)
	}
	if !names.IsDNSLabel(c.Namespace) {
		return fmt.Errorf("namespace: %q is none", c.Namespace)
	}
	if !slices.Contains([]string{VIPsTCP, VIPsAll, VIPsNone}, c.VIPs) {
		return fmt.Errorf("vips: want %s, %s or %s, got %q", VIPsTCP, VIPsAll, VIPsNone, c.VIPs)
	}
	for _, key := range c.Labels {
		if !names.IsLabelKey(key) {
			return fmt.Errorf("%s: %q cannot be the key of a label", c.LabelsKey, key)
		}
	}
	return nil
}

// CheckProtocol checks the option that is the protocol of what says nothing of it.
func CheckProtocol(standard string) error {
	if protocol.Parse(standard).IsUnsupported() {
		return fmt.Errorf("defaultProtocol: Istio knows no protocol %q", standard)
	}
	return nil
}

// Protocol returns Istio's name of the protocol that an instance says, or else of the standard one.
func Protocol(said, standard string) string {
	if p := protocol.Parse(said); !p.IsUnsupported() {
		return string(p)
	}
	return string(protocol.Parse(standard))
}
