package consul

import (
	"errors"
	"slices"

	"tributary/sources"
	"tributary/sources/consul/judge"
	"tributary/sources/consul/mapping"
)

// Follower is another source, which is told what Consul has, and publishes what it makes of that itself: its groups are not Consul's
// services. What Consul's answers prove is decided for it as for a source of Consul's: what it is told is believed, and what is in doubt
// stays.
type Follower interface {
	// Keeper keeps what is known for the next run.
	sources.Keeper
	// Groups are the services of which an earlier run may have had something, which is asked for if what it kept does not tell, and Lost is
	// how much it had of one that has no instance in.
	Groups() []string
	Lost(name string, in []mapping.Service) int
	// Take is told what changed. It is called by one goroutine at a time, and is not to keep it waiting.
	Take(now Now)
}

// Now is what changed of what is believed.
type Now struct {
	Services []Service
	// Left are the names of services that the settings do not select; nil while they are those that were told last, or were not read yet.
	Left   *[]string
	Synced bool // with these, the first full read is in
	Health sources.Health
}

// Service is all that is believed of one.
type Service struct {
	Name string
	In   []mapping.Service // in each part of Consul that has it, if only without instances; none if it is withdrawn, or cannot be read
	More bool              // it may have instances besides that an earlier run knew: that one is missing proves nothing
	Err  error             // why it cannot be read, in some part of Consul; nil if it can
}

// followed is the outlet of a source that is followed by another one.
type followed struct{ Follower }

func (followed) names([]string) []string { return nil }

func (f followed) take(now gathered) {
	told := Now{Left: now.left, Synced: now.synced, Health: now.health}
	for _, w := range now.work {
		s := Service{Name: w.name, In: w.in, More: w.more}
		var reasons []error
		for _, r := range w.rejects {
			reasons = append(reasons, r.Err)
		}
		s.Err = errors.Join(reasons...)
		told.Services = append(told.Services, s)
	}
	for _, name := range now.unread {
		told.Services = append(told.Services, Service{Name: name, More: true})
	}
	f.Take(told)
}

// tell has a run tell a follower.
func (r *run) tell(f Follower) {
	r.out, r.keeper, r.lost = followed{f}, f, f.Lost
	r.inherit = func(kept judge.Records) {
		for _, p := range r.parts {
			record := kept.Parts[p.String()]
			names := slices.Concat(record.Names, record.Held)
			if record.Index == 0 {
				names = f.Groups()
			}
			for _, name := range names {
				r.restored[name] = true
			}
		}
	}
}
