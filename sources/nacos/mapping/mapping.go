// Package mapping converts the services of a Nacos to Istio's ServiceEntries. It is pure: no I/O, no clock, no state.
// Its result is valid for any content of a Nacos, and independent of the order of that content.
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
	"tributary/sources/presence"
	"tributary/sources/registry"
)

// Mapper maps services of one namespace of Nacos. It is safe for concurrent use.
type Mapper struct{ registry.Hosts[ID] }

var _ registry.Mapping[ID] = (*Mapper)(nil)

// New returns a mapper for a namespace of Nacos. Without vips no service gets a virtual address. An error begins with
// the key at fault.
func New(options Options, namespace string, vips registry.VIPs) (*Mapper, error) {
	options = options.WithDefaults()
	if err := options.validate(); err != nil {
		return nil, err
	}
	return &Mapper{registry.NewHosts(options.MappingOptions, vips,
		registry.Naming[ID]{Joint: ".", Parts: func(id ID) []registry.Part {
			return []registry.Part{
				{Placeholder: "{service}", Text: id.Service, Dots: true, Annotation: annotationService},
				{Placeholder: "{group}", Text: id.NacosGroup, Annotation: annotationGroup},
				{Placeholder: "{cluster}", Text: id.Cluster, Annotation: annotationCluster},
				{Placeholder: "{namespace}", Text: namespace, Hidden: namespace == client.PublicNamespace},
			}
		}}, func(id ID) string { return fmt.Sprintf("nacos %s %s %s", namespace, id.NacosGroup, id.Service) })}, nil
}

// The annotations that name the service of Nacos from which a ServiceEntry was made.
const (
	annotationGroup   = "tributary/nacos-group"
	annotationService = "tributary/nacos-service"
	annotationCluster = "tributary/nacos-cluster"
)

// ID identifies a host. Cluster is empty if one host has all clusters.
type ID struct{ NacosGroup, Service, Cluster string }

// Compare orders IDs.
func (id ID) Compare(o ID) int {
	return cmp.Or(cmp.Compare(id.NacosGroup, o.NacosGroup), cmp.Compare(id.Service, o.Service),
		cmp.Compare(id.Cluster, o.Cluster))
}

func (id ID) String() string { return id.Group() + "@@" + id.Cluster }

// Group returns the group of the service, with all its clusters.
func (id ID) Group() string { return id.NacosGroup + "@@" + id.Service }

// idOf returns the ID of an instance's host by the template.
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

// Nacos' weights are fractions, 1 by default; Istio's are whole numbers.
const (
	weightUnit = 100
	maxWeight  = 1_000_000
)

// Offers returns the listed instances of a service. The warnings are about unreadable instances.
func (m *Mapper) Offers(group, service string, instances []client.Instance,
	warnings []string,
) (offers registry.Offers[ID]) {
	id := ID{NacosGroup: group, Service: service}
	for _, w := range warnings {
		offers.Warnings = append(offers.Warnings, m.Place(id)+": "+w)
		offers.LeftOut = append(offers.LeftOut, sources.LeftOut{What: "an instance", Of: service, Why: w})
	}
	// the first one at an address and port counts
	instances = slices.SortedFunc(slices.Values(instances), func(a, b client.Instance) int {
		return cmp.Or(cmp.Compare(a.IP, b.IP), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Cluster, b.Cluster))
	})
	for _, i := range instances {
		i.Cluster = cmp.Or(i.Cluster, defaultCluster)
		offer := registry.Offer[ID]{
			ID: m.idOf(ID{group, service, i.Cluster}), Owner: service, State: presence.Disabled,
			Port: m.WantedPort(i.Metadata), Protocol: m.protocolOf(i),
		}
		var err error
		if offer.Endpoint, err = m.endpoint(i); err != nil {
			offers.Warnings = append(offers.Warnings, m.Place(id)+": "+err.Error())
			offers.LeftOut = append(offers.LeftOut, sources.LeftOut{
				What: net.JoinHostPort(i.IP, strconv.Itoa(i.Port)), Of: service, Why: err.Error(),
			})
		}
		switch {
		case err != nil:
		case !i.Enabled:
			offer.Why = "disabled" // its owner disabled it
		case offer.Endpoint.Weight == 0:
			offer.Why = "weight 0"
		case i.Healthy:
			offer.State = presence.Listed
		default:
			offer.State, offer.Why = presence.Unlisted, "not healthy"
		}
		offers.All = append(offers.All, offer)
	}
	return offers
}

// endpoint converts an instance, served or not. An error says why it cannot be called.
func (m *Mapper) endpoint(i client.Instance) (registry.Endpoint, error) {
	endpoint := registry.Endpoint{Port: uint32(max(0, i.Port)), Labels: m.Labels(i.Metadata)} //nolint:gosec // up to 65535
	address, err := names.Address(i.IP)
	if err != nil {
		return endpoint, fmt.Errorf("instance %s: %w", strconv.Quote(strings.ToValidUTF8(i.IP, "?")), err)
	}
	if i.Port == 0 {
		return endpoint, fmt.Errorf("instance %s has no port", i.IP)
	}
	endpoint.Address = address
	if i.Weight > 0 {
		endpoint.Weight = uint32(min(max(math.Round(i.Weight*weightUnit), 1), maxWeight))
	}
	if names.IsLabelText(i.Cluster) {
		endpoint.Labels[labelCluster] = i.Cluster
	}
	var locality []string
	for _, key := range []string{"region", "zone"} {
		// A missing or invalid part ends the locality, as in Istio's hierarchy.
		if !names.IsLabelText(i.Metadata[key]) {
			break
		}
		locality = append(locality, i.Metadata[key])
	}
	endpoint.Locality = strings.Join(locality, "/")
	return endpoint, nil
}

// protocolOf returns Istio's name of an instance's protocol. Instances of Spring Cloud are marked, and speak HTTP, or
// HTTPS if they are secure (NacosServiceDiscovery.hostToServiceInstance).
func (m *Mapper) protocolOf(i client.Instance) string {
	protocol := i.Metadata[m.ProtocolMeta]
	if protocol == "" && i.Metadata["preserved.register.source"] == "SPRING_CLOUD" {
		protocol = "http"
		if names.IsTrue(i.Metadata["secure"]) {
			protocol = "https"
		}
	}
	return m.Protocol(protocol)
}

// Restore implements registry.Mapping. If another template had one host for all clusters, the label has an endpoint's
// cluster.
func (m *Mapper) Restore(published []*resource.Resource) []registry.Service[ID] {
	return registry.Restored(published,
		func(annotations map[string]string, s registry.Service[ID]) []registry.Service[ID] {
			return s.Split(func(e registry.Endpoint) ID {
				return m.idOf(ID{
					annotations[annotationGroup], annotations[annotationService],
					cmp.Or(annotations[annotationCluster], e.Labels[labelCluster], defaultCluster),
				})
			})
		}, annotationService)
}
