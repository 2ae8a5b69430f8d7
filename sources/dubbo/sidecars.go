package dubbo

import (
	"strings"
	"time"

	"tributary/resource"
	"tributary/sources/dubbo/backend"
	"tributary/sources/dubbo/mapping"
	"tributary/sources/dubbo/provider"
	"tributary/sources/presence"
	"tributary/sources/registry"
)

// sidecarGroup precedes the name of an application in the group of its Sidecar. Names of interfaces have no blanks.
const sidecarGroup = "sidecar of "

// sidecarMapping makes the Sidecar of an application, whose endpoints are the hosts that the application calls.
type sidecarMapping struct{ *mapping.Mapper }

func sidecarID(application string) mapping.ID {
	return mapping.ID{Service: provider.ID{Interface: sidecarGroup + application}}
}

// newSidecars returns the machine of the Sidecars. A new host counts at once, and an unlisted one stays for a grace
// period: a missing host breaks calls, an extra one costs little.
func newSidecars(source *Source) *machine {
	grace := source.settings.SidecarGrace
	if source.settings.Mapping.Sidecars == nil { // those of an earlier run go
		grace = 0
	}
	return registry.NewMachine(sidecarMapping{source.mapper}, func(mapping.ID) time.Duration { return 0 },
		func(_ mapping.ID, missingHost registry.Known) time.Time { return missingHost.Missing.Add(grace) })
}

// Entries implements registry.Mapping.
func (sidecars sidecarMapping) Entries(services []service) ([]*resource.Resource, []string, error) {
	var hosts []string
	for _, endpoint := range services[0].Endpoints {
		hosts = append(hosts, endpoint.Address)
	}
	sidecar, err := sidecars.Sidecar(strings.TrimPrefix(services[0].ID.Group(), sidecarGroup), hosts)
	if err != nil {
		return nil, []string{err.Error()}, nil //nolint:nilerr // a warning is enough
	}
	return []*resource.Resource{sidecar}, nil, nil
}

// Restore implements registry.Mapping.
func (sidecars sidecarMapping) Restore(published []*resource.Resource) (services []service) {
	for application, hosts := range sidecars.Consumed(published) {
		restored := service{ID: sidecarID(application)}
		for _, hostName := range hosts {
			restored.Endpoints = append(restored.Endpoints, registry.Endpoint{Address: hostName})
		}
		services = append(services, restored)
	}
	return services
}

// consumerOffers returns the hosts that applications call now, by group. An offer without a host keeps the Sidecar of
// an application that calls no served host.
func (s *state) consumerOffers() map[string]registry.Offers[mapping.ID] {
	offers := map[string]registry.Offers[mapping.ID]{}
	for interfaceName, dubboInterface := range s.interfaces {
		for _, part := range dubboInterface.partsOf(backend.Consumers) {
			for _, registration := range part.registrations {
				consumer, ok := registration.Consumer()
				if !ok || registration.Failing != "" || consumer.Interface != interfaceName {
					continue
				}
				offer := registry.Offer[mapping.ID]{ID: sidecarID(consumer.Application), State: presence.Listed}
				calls := append(offers[offer.ID.Group()].All, offer)
				consumer.ID = s.mapper.ServiceOf(consumer.ID)
				s.Hosts(interfaceName, func(serviceID mapping.ID, hostName registry.Name) {
					if offer.Endpoint.Address = hostName.Host; consumer.Consumes(serviceID.Service) {
						calls = append(calls, offer)
					}
				})
				offers[offer.ID.Group()] = registry.Offers[mapping.ID]{All: calls}
			}
		}
	}
	return offers
}
