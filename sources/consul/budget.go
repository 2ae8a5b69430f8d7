package consul

import (
	"context"
	"fmt"

	"tributary/sources/consul/dial"
)

// What a Consul lists is bounded also where its answers are short: each service is followed, and each instance is kept. What is beyond that
// is not taken, and what was read before serves on.
const (
	maxServices  = 100_000   // of one domain
	maxInstances = 1_000_000 // of all services
)

// bounds are these limits.
type bounds struct{ services, instances int }

// roomForNames returns an error if a listing has too many services.
func (r *run) roomForNames(_ context.Context, _ *part, l *listing) error {
	if n := len(l.names); n > r.bounds.services {
		return fmt.Errorf("read the names of services: there are %d, of which %d at most are followed: %w", n, r.bounds.services, dial.ErrTooMuch)
	}
	return nil
}

// roomFor returns an error if with what was read of a service there would be too many instances.
func (r *run) roomFor(_ context.Context, s *service, read *reading) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	had, has := len(s.instances.list), len(read.instances.list)
	all := has - had
	for _, p := range r.parts {
		all += p.instances
	}
	if has > had && all > r.bounds.instances {
		return fmt.Errorf("read service %s: with its %d instances there would be %d, of which %d at most are kept: %w", s.name, has, all,
			r.bounds.instances, dial.ErrTooMuch)
	}
	return nil
}

// keep has i be the instances of s. The caller holds mu of run.
func (s *service) keep(i instances) {
	s.part.instances += len(i.list) - len(s.instances.list)
	s.instances = i
}
