// Package mapping turns the services of a Nacos into Istio's ServiceEntries. It is pure: no I/O, no clock, no memory. What it makes is
// valid, whatever is in a Nacos, and is the same for the same content, in whatever order that comes.
package mapping

import (
	"cmp"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"

	"tributary/internal/names"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/nacos/client"
	"tributary/sources/registry"
)

// Mapper maps services of one namespace of Nacos. It is safe for concurrent use.
type Mapper struct{ registry.Hosts[ID] }

var _ registry.Mapping[ID] = (*Mapper)(nil)

// New returns a mapper for a namespace of Nacos. Without vips no service gets a virtual address. An error begins with the key at fault.
func New(o Options, namespace string, vips registry.VIPs) (*Mapper, error) {
	o = o.WithDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	return &Mapper{registry.NewHosts(o.MappingOptions, vips, registry.Naming[ID]{Joint: ".", Parts: func(id ID) []registry.Part {
		return []registry.Part{
			{Placeholder: "{service}", Text: id.Service, Dots: true, Annotation: annotationService},
			{Placeholder: "{group}", Text: id.NacosGroup, Annotation: annotationGroup},
			{Placeholder: "{cluster}", Text: id.Cluster, Annotation: annotationCluster},
			{Placeholder: "{namespace}", Text: namespace, Hidden: namespace == client.PublicNamespace},
		}
	}}, func(id ID) string { return fmt.Sprintf("nacos %s %s %s", namespace, id.NacosGroup, id.Service) })}, nil
}

// The annotations that say of which service of Nacos a ServiceEntry is.
const (
	annotationGroup   = "tributary/nacos-group"
	annotationService = "tributary/nacos-service"
	annotationCluster = "tributary/nacos-cluster"
)

// ID is what hosts are told apart by. Cluster is empty if hosts do not tell clusters apart.
type ID struct{ NacosGroup, Service, Cluster string }

// Compare orders IDs.
func (id ID) Compare(o ID) int {
	return cmp.Or(cmp.Compare(id.NacosGroup, o.NacosGroup), cmp.Compare(id.Service, o.Service), cmp.Compare(id.Cluster, o.Cluster))
}

func (id ID) String() string { return id.Group() + "@@" + id.Cluster }

// Group is that of the service, with all its clusters.
func (id ID) Group() string { return id.NacosGroup + "@@" + id.Service }

// idOf returns the ID as the template tells hosts apart.
func (m *Mapper) idOf(id ID) ID {
	if !strings.Contains(m.HostTemplate, "{cluster}") {
		id.Cluster = ""
	}
	return id
}

const (
	labelCluster   = "cluster"
	defaultCluster = "DEFAULT"
)

// Nacos' weights are fractions, 1 where nothing is set; Istio's are whole.
const (
	weightUnit = 100
	maxWeight  = 1_000_000
)

// Offers returns what Nacos lists of a service. warnings say what is wrong with instances that cannot be read.
func (m *Mapper) Offers(group, service string, all []client.Instance, warnings []string) (offers registry.Offers[ID]) {
	id := ID{NacosGroup: group, Service: service}
	for _, w := range warnings {
		offers.Warnings = append(offers.Warnings, m.Place(id)+": "+w)
		offers.LeftOut = append(offers.LeftOut, sources.LeftOut{What: "an instance", Of: service, Why: w})
	}
	all = slices.SortedFunc(slices.Values(all), func(a, b client.Instance) int { // of which the first one at an address and port counts
		return cmp.Or(cmp.Compare(a.IP, b.IP), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Cluster, b.Cluster))
	})
	for _, i := range all {
		i.Cluster = cmp.Or(i.Cluster, defaultCluster)
		o := registry.Offer[ID]{
			ID: m.idOf(ID{group, service, i.Cluster}), Owner: service, State: registry.Disabled,
			Port: m.WantedPort(i.Metadata), Protocol: m.protocolOf(i),
		}
		var err error
		if o.Endpoint, err = m.endpoint(i); err != nil {
			offers.Warnings = append(offers.Warnings, m.Place(id)+": "+err.Error())
			offers.LeftOut = append(offers.LeftOut, sources.LeftOut{
				What: net.JoinHostPort(i.IP, strconv.Itoa(i.Port)), Of: service, Why: err.Error(),
			})
		}
		switch {
		case err != nil:
		case !i.Enabled:
			o.Why = "disabled" // somebody wants it not to be called
		case o.Endpoint.Weight == 0:
			o.Why = "weight 0"
		case i.Healthy:
			o.State = registry.Listed
		default:
			o.State, o.Why = registry.Unlisted, "not healthy"
		}
		offers.All = append(offers.All, o)
	}
	return offers
}

// endpoint returns what an instance is, whether it is served or not. An error says why it cannot be called.
func (m *Mapper) endpoint(i client.Instance) (registry.Endpoint, error) {
	e := registry.Endpoint{Port: uint32(max(0, i.Port)), Labels: m.Labels(i.Metadata)} //nolint:gosec // up to 65535
	address, err := names.Address(i.IP)
	if err != nil {
		return e, fmt.Errorf("instance %s: %w", strconv.Quote(strings.ToValidUTF8(i.IP, "?")), err)
	}
	if i.Port == 0 {
		return e, fmt.Errorf("instance %s has no port", i.IP)
	}
	e.Address = address
	if i.Weight > 0 {
		e.Weight = uint32(min(max(math.Round(i.Weight*weightUnit), 1), maxWeight))
	}
	if names.IsLabelText(i.Cluster) {
		e.Labels[labelCluster] = i.Cluster
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

// protocolOf returns Istio's name of an instance's protocol. Spring Cloud says that an instance is one of its own, and these speak HTTP,
// with TLS where they are secure (NacosServiceDiscovery.hostToServiceInstance).
func (m *Mapper) protocolOf(i client.Instance) string {
	said := i.Metadata[m.ProtocolMeta]
	if said == "" && i.Metadata["preserved.register.source"] == "SPRING_CLOUD" {
		said = "http"
		if names.IsTrue(i.Metadata["secure"]) {
			said = "https"
		}
	}
	return m.Protocol(said)
}

// Restore implements registry.Mapping. Where another template did not tell clusters apart, the label says of which one an endpoint is.
func (m *Mapper) Restore(published []*resource.Resource) []registry.Service[ID] {
	return registry.Restored(published, func(a map[string]string, s registry.Service[ID]) []registry.Service[ID] {
		return s.Split(func(e registry.Endpoint) ID {
			return m.idOf(ID{a[annotationGroup], a[annotationService], cmp.Or(a[annotationCluster], e.Labels[labelCluster], defaultCluster)})
		})
	}, annotationService)
}
