// Package families keeps what clients of one kind share: it is made when the first of them comes, while others get on, and bounded, since
// clients make up what kind they are.
package families

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Limits of a Set.
type Limits struct {
	Max       int // how many families may be in use at once
	MaxOfHost int // how many of them the clients of one IP address may use at once, so that others find some
	// MaxCost bounds what those in use cost, and MaxCostOfHost what those cost that the clients of one IP address use: beyond it no other one is
	// made for them. Zero is no bound.
	MaxCost, MaxCostOfHost int
	// MaxIdleCost bounds the families without clients that are kept for clients that come back: the least recently used go first.
	MaxIdleCost int
}

// Set is the families in use, and some that were, by what the clients of each have in common. It is safe for concurrent use.
type Set[K comparable, F any] struct {
	// read-only
	what   string // they have in common, for messages
	limits Limits
	cost   func(F) int
	drop   func(F)

	mu      sync.Mutex
	clock   uint64 // counts the uses
	members map[K]*member[F]
	hosts   map[string]map[K]int // how often clients use which: by IP address
}

type member[F any] struct {
	made   chan struct{} // closed when it is made
	family F             // read-only from then on
	failed bool          // to be made; the same

	// guarded by Set.mu
	users   int
	retired bool   // nobody else is to use it
	used    uint64 // when it was last used
	cost    int    // when somebody last asked; as long as it is being made, that of the dearest other one
}

// New returns an empty set. What tells families apart is called what in messages. cost is what keeping a family costs. drop is called with each family
// that is kept no longer, when it has no users; cost may be called at any time.
func New[K comparable, F any](what string, limits Limits, cost func(F) int, drop func(F)) *Set[K, F] {
	return &Set[K, F]{what: what, limits: limits, cost: cost, drop: drop, members: make(map[K]*member[F]), hosts: make(map[string]map[K]int)}
}

// Acquire returns the family of key for one more user, on a host, which is an IP address or, for clients that are not counted, empty; and what ends
// that use, which is to be called once. If there is none, the first to ask has it made, and others who want the same wait for it. Nobody else waits.
func (s *Set[K, F]) Acquire(ctx context.Context, key K, host string, create func() F) (family F, release func(), err error) {
	m, first, err := s.join(key, host)
	if err != nil {
		return family, nil, err
	}
	if first {
		s.create(key, m, host, create)
	}
	select {
	case <-m.made:
	case <-ctx.Done():
		s.release(key, m, host)
		return family, nil, status.FromContextError(ctx.Err()).Err()
	}
	if m.failed {
		s.release(key, m, host)
		return family, nil, errNotMade
	}
	return m.family, func() { s.release(key, m, host) }, nil
}

var errNotMade = errors.New("who made what others want as well did not come to an end")

// create makes a family. If that panics, the next who wants it makes it.
func (s *Set[K, F]) create(key K, m *member[F], host string, create func() F) {
	m.failed = true
	defer func() {
		if m.failed {
			s.mu.Lock()
			if s.members[key] == m {
				delete(s.members, key)
			}
			s.mu.Unlock()
			s.release(key, m, host)
		}
		close(m.made)
	}()
	m.family = create()
	m.failed = false
}

// join notes a use, and says whether it is the first one of a family that has to be made.
func (s *Set[K, F]) join(key K, host string) (m *member[F], first bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	uses := s.hosts[host]
	if host != "" && uses[key] == 0 && len(uses) >= s.limits.MaxOfHost {
		return nil, false, status.Errorf(codes.ResourceExhausted, "too many different %s in use by %s: the limit is %d", s.what, host, s.limits.MaxOfHost)
	}
	m = s.members[key]
	if first = m == nil; first {
		if err := s.mayMake(host); err != nil {
			return nil, false, err
		}
		m = &member[F]{made: make(chan struct{}), cost: s.mostExpensive()}
		s.members[key] = m
	}
	if uses == nil {
		uses = make(map[K]int)
		s.hosts[host] = uses
	}
	uses[key]++
	m.users++
	s.clock++
	m.used = s.clock
	return m, first, nil
}

// mayMake says whether one more family may be made, for a host.
func (s *Set[K, F]) mayMake(host string) error {
	inUse, cost, ofHost := 0, 0, 0
	for key, m := range s.members {
		if m.users == 0 {
			continue
		}
		inUse++
		if m.isMade() {
			m.cost = s.cost(m.family)
		}
		cost += m.cost
		if s.hosts[host][key] > 0 {
			ofHost += m.cost
		}
	}
	switch {
	case inUse >= s.limits.Max:
		return status.Errorf(codes.ResourceExhausted, "too many different %s in use: the limit is %d", s.what, s.limits.Max)
	case s.limits.MaxCost > 0 && cost >= s.limits.MaxCost:
		return status.Errorf(codes.ResourceExhausted, "the different %s in use cost %d: the limit is %d", s.what, cost, s.limits.MaxCost)
	case host != "" && s.limits.MaxCostOfHost > 0 && ofHost >= s.limits.MaxCostOfHost:
		return status.Errorf(codes.ResourceExhausted, "the different %s in use by %s cost %d: the limit is %d", s.what, host, ofHost, s.limits.MaxCostOfHost)
	}
	return nil
}

// mostExpensive is what the dearest family costs.
func (s *Set[K, F]) mostExpensive() (most int) {
	for _, m := range s.members {
		most = max(most, m.cost)
	}
	return most
}

func (m *member[F]) isMade() bool {
	select {
	case <-m.made:
		return !m.failed
	default:
		return false
	}
}

// Retire takes the families away of whose keys is says so. Who uses one goes on doing so, until which it is not dropped; for who comes, another one is made.
func (s *Set[K, F]) Retire(is func(key K) bool) {
	for _, family := range s.retire(is) {
		s.drop(family)
	}
}

func (s *Set[K, F]) retire(is func(key K) bool) (idle []F) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, m := range s.members {
		if !is(key) {
			continue
		}
		delete(s.members, key)
		if m.retired = true; m.users == 0 {
			idle = append(idle, m.family)
		}
	}
	return idle
}

// release ends a use. Families without users go when they cost too much.
func (s *Set[K, F]) release(key K, m *member[F], host string) {
	for _, family := range s.leave(key, m, host) {
		s.drop(family)
	}
}

func (s *Set[K, F]) leave(key K, m *member[F], host string) (dropped []F) {
	s.mu.Lock()
	defer s.mu.Unlock()
	uses := s.hosts[host]
	if uses[key]--; uses[key] <= 0 {
		delete(uses, key)
	}
	if len(uses) == 0 {
		delete(s.hosts, host)
	}
	if m.users--; m.users > 0 || m.failed {
		return nil
	}
	if m.retired {
		return []F{m.family}
	}
	s.clock++
	m.used, m.cost = s.clock, s.cost(m.family)
	type idle struct {
		key K
		*member[F]
	}
	var without []idle
	cost := 0
	for key, m := range s.members {
		if m.users == 0 {
			without = append(without, idle{key, m})
			cost += m.cost
		}
	}
	slices.SortFunc(without, func(a, b idle) int { return cmp.Compare(a.used, b.used) })
	for _, m := range without {
		if cost <= s.limits.MaxIdleCost {
			break
		}
		cost -= m.cost
		delete(s.members, m.key)
		dropped = append(dropped, m.family)
	}
	return dropped
}
