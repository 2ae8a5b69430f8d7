// Package families keeps what clients of one kind share: it is made when the first of them comes, while others get on, and bounded, since
// clients make up what kind they are.
package families

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tributary/internal/turns"
)

// Limits of a Set.
type Limits struct {
	Max       int // how many families may be in use at once
	MaxOfHost int // how many of them the clients of one IP address may use at once, so that others find some
	// MaxCost bounds what those in use cost together, and MaxCostOfHost what those cost that the clients of one IP address use. A family that
	// would exceed a bound is not made, unless it would be the only one. Zero is no bound.
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
	turns  *turns.Turns // for estimating and making a family: one processor is left to everything else, and addresses take turns

	freeing sync.Mutex // held while memory is given back

	mu      sync.Mutex
	clock   uint64 // counts the uses
	members map[K]*member[F]
	hosts   map[string]map[K]int // how often clients use which: by IP address
	dropped int                  // what families cost that were dropped since memory was last given back
}

type member[F any] struct {
	made   chan struct{}   // closed when it is made, or failed
	family F               // read-only from then on
	err    error           // why it failed; the same
	ctx    context.Context // of making it
	cancel func()          // ends ctx

	// guarded by Set.mu
	users int
	done  bool   // made or failed
	used  uint64 // when it was last used
	cost  int    // when somebody last asked; an estimate as long as it is being made
}

// New returns an empty set. What tells families apart is called what in messages. cost is what keeping a family costs. drop is called with
// each family that is kept no longer, when it has no users; cost may be called at any time.
func New[K comparable, F any](what string, limits Limits, cost func(F) int, drop func(F)) *Set[K, F] {
	return &Set[K, F]{
		what: what, limits: limits, cost: cost, drop: drop, turns: turns.New(max(runtime.GOMAXPROCS(0)-1, 1)),
		members: make(map[K]*member[F]), hosts: make(map[string]map[K]int),
	}
}

// Maker makes a family.
type Maker[F any] struct {
	Estimate func() int // what it will cost, before it is made
	// Make makes it. When ctx ends, nobody waits for it any longer: Make gives up and returns the error of ctx.
	Make func(ctx context.Context) (F, error)
}

// Acquire returns the family of key for one more user, on a host, which is an IP address or, for clients that are not counted, empty; and
// what ends that use, which is to be called once. If there is none, the first to ask has it made, if its estimated cost is within the
// limits, and others who want the same wait for it.
func (s *Set[K, F]) Acquire(ctx context.Context, key K, host string, maker Maker[F]) (family F, release func(), err error) {
	m, release, _, err := s.join(ctx, key, host, unknown)
	if m == nil && err == nil {
		if waited := s.turns.Do(ctx, host, func() { m, release, err = s.create(ctx, key, host, maker) }); waited != nil {
			err = status.FromContextError(ctx.Err()).Err()
		}
	}
	if err != nil {
		return family, nil, err
	}
	select {
	case <-m.made:
		err = m.err
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		err = status.FromContextError(ctx.Err()).Err()
	}
	if err != nil {
		release()
		return family, nil, err
	}
	return m.family, release, nil
}

// InTurn does work for a host when it is its turn among those who make families.
func (s *Set[K, F]) InTurn(ctx context.Context, host string, work func()) error {
	return s.turns.Do(ctx, host, work)
}

var errNotMade = errors.New("who made what others want as well did not come to an end")

// create estimates and makes a family, until nobody waits for it, unless another client has it made meanwhile. If that panics, the next who
// wants it makes it.
func (s *Set[K, F]) create(ctx context.Context, key K, host string, maker Maker[F]) (m *member[F], release func(), err error) {
	m, release, first, err := s.join(ctx, key, host, unknown)
	if m == nil && err == nil {
		m, release, first, err = s.join(ctx, key, host, maker.Estimate())
	}
	if !first {
		return m, release, err
	}
	m.err = errNotMade
	stop := context.AfterFunc(ctx, release)
	defer func() {
		stop()
		if m.err != nil {
			release()
		}
		s.mu.Lock()
		m.done = true
		if m.err != nil && s.members[key] == m {
			delete(s.members, key)
		}
		unused := m.err == nil && m.users == 0
		s.mu.Unlock()
		m.cancel()
		close(m.made)
		if unused {
			s.discard(m.family)
		}
	}()
	m.family, m.err = maker.Make(m.ctx)
	return m, release, nil
}

// unknown is the cost of a family that has not been estimated.
const unknown = -1

// join notes a use, and says whether it is the first one of a family that has to be made. Without an estimate it returns no member for such
// a family, and an error only if there are too many families.
func (s *Set[K, F]) join(ctx context.Context, key K, host string, estimate int) (m *member[F], release func(), first bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	uses := s.hosts[host]
	if host != "" && uses[key] == 0 && len(uses) >= s.limits.MaxOfHost {
		return nil, nil, false, status.Errorf(codes.ResourceExhausted, "too many different %s in use by %s: the limit is %d", s.what, host,
			s.limits.MaxOfHost)
	}
	m = s.members[key]
	if m != nil && m.users == 0 {
		if err := s.mayUse(host, s.cost(m.family)); err != nil {
			return nil, nil, false, err
		}
	}
	if first = m == nil; first {
		if err := s.mayUse(host, estimate); err != nil || estimate == unknown {
			return nil, nil, false, err
		}
		m = &member[F]{made: make(chan struct{}), cost: estimate}
		m.ctx, m.cancel = context.WithCancel(context.WithoutCancel(ctx)) //nolint:gosec // leave and create call it
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
	return m, sync.OnceFunc(func() { s.release(key, m, host) }), first, nil
}

// mayUse says whether one more family may be in use, by a host: by their number only, as long as its cost is unknown.
func (s *Set[K, F]) mayUse(host string, estimate int) error {
	inUse, cost, ofHost := 0, 0, 0
	for key, m := range s.members {
		if m.users == 0 {
			continue
		}
		inUse++
		if m.done {
			m.cost = s.cost(m.family)
		}
		cost += m.cost
		if s.hosts[host][key] > 0 {
			ofHost += m.cost
		}
	}
	exceeds := func(cost, limit int) bool {
		return estimate != unknown && limit > 0 && cost > 0 && cost+estimate > limit
	}
	switch {
	case inUse >= s.limits.Max:
		return status.Errorf(codes.ResourceExhausted, "too many different %s in use: the limit is %d", s.what, s.limits.Max)
	case exceeds(cost, s.limits.MaxCost):
		return status.Errorf(codes.ResourceExhausted, "the different %s in use cost %d, and one more would cost %d: the limit is %d", s.what,
			cost, estimate, s.limits.MaxCost)
	case host != "" && exceeds(ofHost, s.limits.MaxCostOfHost):
		return status.Errorf(codes.ResourceExhausted, "the different %s in use by %s cost %d, and one more would cost %d: the limit is %d",
			s.what, host, ofHost, estimate, s.limits.MaxCostOfHost)
	}
	return nil
}

// release ends a use. Families without users go when they cost too much.
func (s *Set[K, F]) release(key K, m *member[F], host string) { s.discard(s.leave(key, m, host)...) }

// discard drops families. The memory of many is given back to the system at once: the runtime alone would keep it for minutes.
func (s *Set[K, F]) discard(families ...F) {
	cost := 0
	for _, family := range families {
		cost += s.cost(family)
		s.drop(family)
	}
	s.mu.Lock()
	s.dropped += cost
	enough := cost > 0 && s.dropped > s.limits.MaxIdleCost
	s.mu.Unlock()
	if !enough || !s.freeing.TryLock() {
		return
	}
	defer s.freeing.Unlock()
	s.mu.Lock()
	s.dropped = 0
	s.mu.Unlock()
	debug.FreeOSMemory()
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
	if m.users--; m.users > 0 {
		return nil
	}
	if !m.done || m.err != nil { // nobody waits for it any longer, or it failed
		if m.cancel(); s.members[key] == m {
			delete(s.members, key)
		}
		return nil
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
