package eureka

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"tributary/internal/words"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/eureka/mapping"
	"tributary/sources/eureka/wire"
	"tributary/sources/registry"
)

// state decides which instances are served. It does no I/O and has no clock. Its maps have the keys of
// mapping.InstanceOf.
type state struct {
	*registry.Machine[mapping.ID]
	mapper     *mapping.Mapper
	settings   Settings
	suspicion  registry.Suspicion
	listed     map[string]wire.Instance // the last listing
	ended      map[string]time.Time     // when instances ended, as the server reports
	displaced  map[place]bool           // places at which the last listing has a new service
	unselected int                      // listed applications that the settings leave out
	problems   []string                 // instances that cannot be read or called, with the reason
}

// place is an address and port.
type place struct {
	address string
	port    uint32
}

func placeOf(endpoint registry.Endpoint) place { return place{endpoint.Address, endpoint.Port} }

// placement is a service at a place.
type placement struct {
	service mapping.ID
	place   place
}

func newState(mapper *mapping.Mapper, settings Settings) *state {
	created := &state{mapper: mapper, settings: settings}
	keepEmpty := func(mapping.ID) time.Duration { return settings.KeepEmpty }
	created.Machine = registry.NewMachine(mapper, keepEmpty, created.keepUntil)
	return created
}

// restore takes back what an earlier run published of a host.
func (s *state) restore(group string, published []*resource.Resource) {
	s.Restore(group, published, func(service registry.Service[mapping.ID]) bool {
		return len(service.Owners) == 0 || slices.ContainsFunc(service.Owners, s.settings.selects)
	})
}

// maxLoss returns how many instances may go at once without a suspicion: at most 15 %, as Eureka itself evicts, but at
// least one.
func maxLoss(instances int) int { return instances - instances*85/100 }

// takeListing takes a listing of a server. It reports whether a suspicion began: the listing proves nothing about
// unlisted instances after an outage, from another server (switched) or one that took most instances at another time,
// if it cannot be read as a whole, or if too many instances are missing.
func (s *state) takeListing(answer *wire.Answer, switched bool, now time.Time) (suspicious bool) {
	previous := s.listed
	s.listed, s.problems = make(map[string]wire.Instance, len(answer.Instances)), nil
	if answer.Nameless > 0 {
		nameless := words.Count(answer.Nameless, "instance", "instances")
		s.problems = append(s.problems, fmt.Sprintf("%s without a name: %v", nameless, answer.Why))
	}
	missing, again := len(previous), 0
	for _, instance := range answer.Instances {
		identity := mapping.InstanceOf(instance.Key)
		if earlier, listed := previous[identity]; listed {
			missing--
			if instance.Registered != earlier.Registered {
				again++
			}
		}
		s.listed[identity] = instance
	}
	suspicious = switched || !s.suspicion.Away.IsZero() || answer.Nameless > 0 || missing > maxLoss(len(previous)) ||
		2*again > len(previous)-missing
	if suspicious {
		var pause time.Duration
		s.suspicion, pause = s.suspicion.Return(now, s.settings.Hold)
		s.Postpone(pause) // no instance could register during the outage
	}
	s.TakeAll(s.offers(slices.Clone(answer.Instances)))
	s.Reconsider()
	return suspicious
}

// offers returns the offers of instances, by group.
func (s *state) offers(instances []wire.Instance) map[string]registry.Offers[mapping.ID] {
	served := map[placement]bool{}
	s.Endpoints(func(id mapping.ID, endpoint registry.Known[registry.Endpoint]) {
		served[placement{id, placeOf(endpoint.Value)}] = true
	})
	s.displaced = map[place]bool{}
	listed, unselected := map[placement]bool{}, map[string]bool{}
	groups := map[string]registry.Offers[mapping.ID]{}
	leaveOut := func(instance wire.Instance, reason string) {
		address := instance.IP
		if address != "" && address != instance.ID && !strings.Contains(reason, strconv.Quote(address)) {
			reason += ", at " + address // so that a search for the address finds it
		}
		for _, name := range s.mapper.Groups(instance) {
			group := groups[name]
			group.LeftOut = append(group.LeftOut, sources.LeftOut{What: instance.ID, Of: instance.App, Why: reason})
			groups[name] = group
		}
	}
	// Of several instances at one place the newest counts: a killed process may return with another name.
	slices.SortStableFunc(instances, func(a, b wire.Instance) int { return cmp.Compare(b.Dirty, a.Dirty) })
	for _, instance := range instances {
		if !s.settings.selects(instance.App) {
			unselected[instance.App] = true
			continue
		}
		if instance.Broken != nil { // what is served of it stays: see keepUntil
			s.problems = append(s.problems, fmt.Sprintf("%s cannot be read: %v", instance.Key, instance.Broken))
			leaveOut(instance, "cannot be read: "+instance.Broken.Error())
			continue
		}
		offers, warnings, err := s.mapper.Offers(instance)
		if err != nil {
			s.problems = append(s.problems, fmt.Sprintf("%s: %v", instance.Key, err))
			leaveOut(instance, err.Error())
		}
		for _, offer := range offers {
			position := placement{offer.ID, placeOf(offer.Endpoint)}
			if listed[position] {
				offer.State, offer.Why = registry.Unlisted, ""
			}
			if listed[position] = true; !served[position] {
				s.displaced[position.place] = true
			}
			group := groups[offer.ID.Group()]
			for _, warning := range warnings {
				group.Warnings = append(group.Warnings, instance.String()+": "+warning)
			}
			group.All = append(group.All, offer)
			groups[offer.ID.Group()] = group
		}
	}
	s.unselected = len(unselected)
	return groups
}

// unproven reports whether an unlisted instance is in doubt: the server does not report its end.
func (s *state) unproven() (doubtful bool) {
	if !s.suspicion.End.IsZero() {
		s.Endpoints(func(_ mapping.ID, endpoint registry.Known[registry.Endpoint]) {
			_, listed := s.listed[endpoint.Value.Instance]
			doubtful = doubtful || !listed && !s.reportsEnd(endpoint)
		})
	}
	return doubtful
}

// takeChanges takes the recent changes of the followed server.
func (s *state) takeChanges(changes []wire.Instance) {
	s.ended = map[string]time.Time{}
	for _, change := range changes {
		if change.Action == wire.Deleted {
			s.ended[mapping.InstanceOf(change.Key)] = time.UnixMilli(int64(change.Evicted))
		}
	}
	s.Reconsider()
}

// reportsEnd reports whether the instance of an endpoint ended after the endpoint was first listed. An earlier end is
// old: the instance registered again.
func (s *state) reportsEnd(endpoint registry.Known[registry.Endpoint]) bool {
	end, reported := s.ended[endpoint.Value.Instance]
	return reported && !end.Before(endpoint.Since.Truncate(time.Second))
}

// keepUntil returns how long an unlisted endpoint stays.
func (s *state) keepUntil(_ mapping.ID, endpoint registry.Known[registry.Endpoint]) time.Time {
	switch instance, listed := s.listed[endpoint.Value.Instance]; {
	case listed && instance.Broken != nil && s.mapper.MayServe(instance):
		return registry.Forever
	case listed: // its registration changed
		return time.Time{}
	case s.reportsEnd(endpoint), s.displaced[placeOf(endpoint.Value)]:
		return time.Time{}
	}
	return s.suspicion.Until(endpoint.Since, endpoint.Missing)
}
