package eureka

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"tributary/internal/words"
	"tributary/sources"
	"tributary/sources/eureka/mapping"
	"tributary/sources/eureka/wire"
	"tributary/sources/presence"
	"tributary/sources/registry"
)

type catalog = registry.Catalog[mapping.ID]

// state decides which instances are served. Its maps have the keys of mapping.InstanceOf.
type state struct {
	*Source
	*registry.Poller[mapping.ID]
	listed    map[string]wire.Instance // the last listing
	ended     map[string]time.Time     // when instances ended, as the server reports
	displaced map[placement]bool       // places at which the last listing has a new service

	listing, changes *response // the last answers of the followed server
}

// placement is a service at an address and port, or such a place.
type placement struct {
	service mapping.ID
	address string
	port    uint32
}

func placementOf(service mapping.ID, endpoint registry.Endpoint) placement {
	return placement{service, endpoint.Address, endpoint.Port}
}

func placeOf(endpoint registry.Endpoint) placement { return placementOf(mapping.ID{}, endpoint) }

func newState(source *Source) *state {
	created := &state{Source: source, listing: noReply, changes: noReply}
	created.Poller = registry.NewPoller(registry.PollOptions[mapping.ID]{
		PollSettings: source.settings.PollSettings, Servers: source.servers.Servers(), Read: created.read,
		Mapping: source.mapper, Selects: created.selects, HoldEnd: created.holdEnd, InDoubt: created.inDoubt,
		Counts: source.counts,
	})
	return created
}

// selects reports whether the service of an earlier run has an application that is still to be read.
func (s *state) selects(service registry.Service[mapping.ID]) bool {
	return len(service.Owners) == 0 || slices.ContainsFunc(service.Owners, s.settings.selects)
}

// maxLoss returns how many instances may go at once without a suspicion: at most 15 %, as Eureka itself evicts, but at
// least one.
func maxLoss(instances int) int { return instances - instances*85/100 }

// takeListing takes a listing and the recent changes of a server. The listing is doubtful if it has other registration
// times of most instances, if a part cannot be read, or if too many instances are missing.
func (s *state) takeListing(answer *wire.Answer, changes []wire.Instance) *catalog {
	previous := s.listed
	s.listed = make(map[string]wire.Instance, len(answer.Instances))
	missing, registered := len(previous), 0
	for _, instance := range answer.Instances {
		identity := mapping.InstanceOf(instance.Key)
		if earlier, listed := previous[identity]; listed {
			missing--
			if instance.Registered != earlier.Registered {
				registered++
			}
		}
		s.listed[identity] = instance
	}
	s.ended = map[string]time.Time{}
	for _, change := range changes {
		if change.Action == wire.Deleted {
			s.ended[mapping.InstanceOf(change.Key)] = time.UnixMilli(int64(change.Evicted))
		}
	}
	doubtful := answer.Nameless > 0 || missing > maxLoss(len(previous)) || 2*registered > len(previous)-missing
	result := &catalog{Doubtful: doubtful}
	if answer.Nameless > 0 {
		nameless := words.Count(answer.Nameless, "instance", "instances")
		result.Problems = []string{fmt.Sprintf("%s without a name: %v", nameless, answer.Why)}
	}
	s.offer(slices.Clone(answer.Instances), result)
	return result
}

// offer adds the offers of instances to a catalog.
func (s *state) offer(instances []wire.Instance, result *catalog) {
	served := map[placement]bool{}
	s.Endpoints(func(id mapping.ID, endpoint registry.Known) {
		served[placementOf(id, endpoint.Value)] = true
	})
	s.displaced = map[placement]bool{}
	listed, unselected := map[placement]bool{}, map[string]bool{}
	// Of several instances at one place the newest counts: a killed process may return with another name.
	slices.SortStableFunc(instances, func(a, b wire.Instance) int { return cmp.Compare(b.Dirty, a.Dirty) })
	for _, instance := range instances {
		if !s.settings.selects(instance.App) {
			unselected[instance.App] = true
			continue
		}
		if instance.Broken != nil { // its endpoints stay: see holdEnd
			s.leaveOut(instance, " ", "cannot be read: "+instance.Broken.Error(), result)
			continue
		}
		offered, warnings, err := s.mapper.Offers(instance)
		for index := range warnings {
			warnings[index] = instance.String() + ": " + warnings[index]
		}
		if err != nil {
			s.leaveOut(instance, ": ", err.Error(), result)
		}
		for _, offer := range offered {
			position := placementOf(offer.ID, offer.Endpoint)
			if listed[position] {
				offer.State, offer.Why = presence.Unlisted, ""
			}
			if listed[position] = true; !served[position] {
				s.displaced[placeOf(offer.Endpoint)] = true
			}
			result.Offer(offer, warnings...)
		}
	}
	if len(unselected) > 0 {
		result.Empty = "none of " + words.Count(len(unselected), "application", "applications") + " is selected"
	}
}

// leaveOut adds an instance that is not served to the problems, and to the groups of its hosts.
func (s *state) leaveOut(instance wire.Instance, separator, reason string, result *catalog) {
	result.Problems = append(result.Problems, instance.String()+separator+reason)
	address := instance.IP
	if address != "" && address != instance.ID && !strings.Contains(reason, strconv.Quote(address)) {
		reason += ", at " + address // so that a search for the address finds it
	}
	for _, group := range s.mapper.Groups(instance) {
		result.LeaveOut(group, sources.LeftOut{What: instance.ID, Of: instance.App, Why: reason})
	}
}

// inDoubt reports whether an instance is unlisted, and the server does not report its end.
func (s *state) inDoubt(endpoint registry.Known) bool {
	_, listed := s.listed[endpoint.Value.Instance]
	return !listed && !s.reportsEnd(endpoint)
}

// reportsEnd reports whether the instance of an endpoint ended after the endpoint was first listed. An earlier end is
// old: the instance registered again.
func (s *state) reportsEnd(endpoint registry.Known) bool {
	end, reported := s.ended[endpoint.Value.Instance]
	return reported && !end.Before(endpoint.FirstListed.Truncate(time.Second))
}

// holdEnd returns until when an unlisted endpoint stays.
func (s *state) holdEnd(_ mapping.ID, endpoint registry.Known) time.Time {
	switch instance, listed := s.listed[endpoint.Value.Instance]; {
	case listed && instance.Broken != nil && (instance.Status == wire.Unknown || s.mapper.Serves(instance)):
		return presence.Forever
	case listed, s.reportsEnd(endpoint), s.displaced[placeOf(endpoint.Value)]: // listed: its registration changed
		return time.Time{}
	}
	return s.Suspicion.Deadline(endpoint.FirstListed, endpoint.Missing)
}
