// Package families keeps what clients with the same attributes share. A family is made for its first client. Their number and cost are
// bounded, since clients choose their attributes.
package families

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tributary/internal/turns"
)

// Limits of a Set.
type Limits struct {
	Max       int // how many families may be in use at once
	MaxOfHost int // how many of them the clients of one IP address may use at once, so that others find some
	// MaxCost bounds the cost of all families in use, and MaxCostOfHost that of the families that the clients of one IP address use. A family
	// that would exceed a bound is made only if it would be the only one. Zero is no bound.
	MaxCost, MaxCostOfHost int
	// MaxIdleCost bounds the cost of the families that are kept without clients; the least recently used go first. If zero, none are kept.
	MaxIdleCost int
}

// Set has the families in use, and some idle ones, by key. It is safe for concurrent use.
type Set[K comparable, F any] struct {
	// read-only
	what   string // the keys are, for messages
	limits Limits
	cost   func(F) int
	drop   func(F)
	turns  *turns.Turns // of estimating and making families: one processor stays free, and addresses take turns

	mu         sync.Mutex
	clock      uint64 // counts the uses
	members    map[K]*member[F]
	hosts      map[string]map[K]int // how often clients use which: by IP address
	dropped    int                  // the cost of the families dropped since memory was last returned
	reclaiming bool                 // memory will be returned
}

type member[F any] struct {
	made   chan struct{}   // closed when the family is made, or failed
	family F               // read-only from then on
	err    error           // why it failed; the same
	ctx    context.Context // of making it
	cancel func()          // ends ctx

	// guarded by Set.mu
	users int
	done  bool   // made or failed
	used  uint64 // when it was last used
	cost  int    // when last asked; an estimate until the family is made
}

// New returns an empty set. Messages call the keys what. cost returns the cost of a family, and may be called at any time. drop is called
// with each family that is removed, when it has no users.
func New[K comparable, F any](what string, limits Limits, cost func(F) int, drop func(F)) *Set[K, F] {
	return &Set[K, F]{
		what: what, limits: limits, cost: cost, drop: drop, turns: turns.New(max(runtime.GOMAXPROCS(0)-1, 1)),
		members: make(map[K]*member[F]), hosts: make(map[string]map[K]int),
	}
}

// Maker makes a family.
type Maker[F any] struct {
	Estimate func() int // what it will cost, before it is made
	// Make makes it. When ctx ends, no client waits any more: Make gives up and returns the error of ctx.
	Make func(ctx context.Context) (F, error)
}

// Acquire returns the family of key for one more user, and a function that ends that use, to be called once. host is the IP address of the
// client; empty if it is not counted. If there is no family, the first caller makes it, if its estimated cost is within the limits, and
// others wait for it.
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

// InTurn does work for a host when its turn comes among those that make families.
func (s *Set[K, F]) InTurn(ctx context.Context, host string, work func()) error {
	return s.turns.Do(ctx, host, work)
}

var errNotMade = errors.New("making a shared family failed")

// create estimates and makes a family, until nobody waits for it, unless another client made it meanwhile. If that panics, the next client
// makes it.
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

// join counts a use, and reports whether it is the first of a family that has to be made. Without an estimate it returns no member for such
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

// mayUse returns an error if a host may not use one more family. If the cost is unknown, only their number counts.
func (s *Set[K, F]) mayUse(host string, estimate int) error {
	inUse, cost, ofHost := 0, 0, 0
	for _, m := range s.members {
		if m.users == 0 {
			continue
		}
		inUse++
		if m.done {
			m.cost = s.cost(m.family)
		}
		cost += m.cost
	}
	for key := range s.hosts[host] { // to hash all keys would take long
		if m := s.members[key]; m != nil && m.users > 0 {
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

// release ends a use, and drops families without users that cost too much.
func (s *Set[K, F]) release(key K, m *member[F], host string) { s.discard(s.leave(key, m, host)...) }

// Has says whether there is a family of key, used or kept.
func (s *Set[K, F]) Has(key K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.members[key] != nil
}

// Forget drops the family of key at once if it has no users.
func (s *Set[K, F]) Forget(key K) {
	s.mu.Lock()
	m := s.members[key]
	unused := m != nil && m.users == 0
	if unused {
		delete(s.members, key)
	}
	s.mu.Unlock()
	if unused {
		s.discard(m.family)
	}
}

// reclaimDelay is how long dropped families may be in use by their last streams.
const reclaimDelay = 5 * time.Second

// discard drops families, and returns their memory to the system soon: the runtime would keep it for minutes.
func (s *Set[K, F]) discard(families ...F) {
	cost := 0
	for _, family := range families {
		cost += s.cost(family)
		s.drop(family)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dropped += cost; s.dropped > s.limits.MaxIdleCost/reclaimShare && s.limits.MaxIdleCost > 0 && !s.reclaiming {
		s.reclaiming = true
		time.AfterFunc(reclaimDelay, s.reclaim)
	}
}

// reclaimShare is the share of the idle cost whose memory is not worth a garbage collection.
const reclaimShare = 10

// reclaim returns the memory of dropped families to the system.
func (s *Set[K, F]) reclaim() {
	s.mu.Lock()
	s.dropped, s.reclaiming = 0, false
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
