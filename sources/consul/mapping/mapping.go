// Package mapping converts Consul's services to Istio's ServiceEntries. It is pure: no I/O, no clock. Its objects are
// valid for any content of Consul, and equal for equal content in any order.
//
// instance.go decides whether an instance is served. family.go joins the scopes of a service and makes its hosts,
// shape.go chooses the ports, build.go makes the objects. retain.go keeps endpoints that were not confirmed as gone.
package mapping

import (
	"slices"
	"strings"

	"github.com/hashicorp/consul/api"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/registry"
)

// Service is one service in one scope: a datacenter, or a namespace, partition or peer in it. Without entries it has no
// instance. Entries and their nodes and services are not nil.
type Service struct {
	Name       string
	Datacenter string
	Namespace  string // empty or "default" in the community edition
	Partition  string // empty or "default" in the community edition
	Peer       string // empty if not imported from a peer
	Entries    []*api.ServiceEntry
}

// Mapper maps services.
//
// Each port of a service has a number, to which the ports of the endpoints map. The number is the first one of:
// Options.ServicePort, the meta of most instances, the previous number, and the port of most instances, healthy or not.
// So instances with other ports may come and go without an effect on clients. The mapper remembers numbers until the
// service is withdrawn; Restore sets them after a restart.
type Mapper struct {
	options Options
	vips    registry.VIPs
	shapes  map[string]shape    // the last ones published, by host
	hosts   map[string][]string // hosts in shapes, by service; a service without hosts was mapped, too
	claims  map[string]claim    // by service
}

// New returns a mapper. Without vips no service gets a virtual address. An error begins with the key at fault.
func New(options Options, vips registry.VIPs) (*Mapper, error) {
	options = options.WithDefaults()
	if err := options.check(); err != nil {
		return nil, err
	}
	return &Mapper{
		options: options, vips: vips,
		shapes: map[string]shape{}, hosts: map[string][]string{}, claims: map[string]claim{},
	}, nil
}

// Service maps a service: scopes has an element for each datacenter, namespace, partition and peer that has it, in any
// order. Without scopes the service is withdrawn and forgotten. A service without healthy instances becomes a
// ServiceEntry without endpoints. Services of sidecars and gateways have no objects.
//
// A reject has no key: the published objects of the service should stay, as they do behind a sink.
func (m *Mapper) Service(name string, scopes []Service) sources.Content {
	content := sources.Content{Group: name}
	if len(scopes) == 0 {
		m.forget(name, nil)
		delete(m.hosts, name)
		return content
	}
	claim, claimed := m.claims[name]
	if !claimed {
		claim.label = labelOf(name)
	}
	if claim.warning != "" {
		content.Warnings = []string{claim.warning}
	}
	if claim.label == "" {
		m.hosts[name] = nil
		return content
	}
	var hosts []string
	for _, family := range m.families(name, claim.label, scopes) {
		for _, i := range family.instances() {
			if i.reason != "" {
				content.LeftOut = append(content.LeftOut, sources.LeftOut{What: i.endpoint, Of: name, Why: i.reason})
			}
		}
		warner := &warner{place: family.place()}
		objects, err := m.mapFamily(family, warner)
		content.Warnings = append(content.Warnings, warner.list()...)
		if err != nil {
			content.Rejects = append(content.Rejects, sources.Reject{Origin: resource.Origin{Place: warner.place}, Err: err})
			continue
		}
		hosts = append(hosts, family.host)
		content.Resources = append(content.Resources, objects...)
	}
	if len(content.Rejects) == 0 {
		m.forget(name, hosts)
		m.hosts[name] = hosts
	}
	slices.Sort(content.Warnings)
	return content
}

// forget forgets the shapes of a service, except for those of some hosts.
func (m *Mapper) forget(name string, except []string) {
	for _, host := range m.hosts[name] {
		if !slices.Contains(except, host) {
			delete(m.shapes, host)
		}
	}
}

// Restore remembers the ports of ServiceEntries of an earlier run. Ports that this mapper chose take precedence.
func (m *Mapper) Restore(objects []*resource.Resource) {
	for host, restored := range shapesOf(objects) {
		if _, mapped := m.shapes[host]; !mapped {
			m.shapes[host] = restored
		}
	}
}

// valid replaces bytes that are not UTF-8.
func valid(text string) string { return strings.ToValidUTF8(text, "?") }
