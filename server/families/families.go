// Package families shares collections between clients with the same attributes. The first client of a family makes it.
// The number and the cost of families are limited, because clients choose their attributes.
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

// Limits of a Set. A limit of a host counts the families that the clients of one IP address use.
type Limits struct {
	Max       int // families in use
	MaxOfHost int // families in use by a host
	// MaxCost and MaxCostOfHost limit the cost of families in use. The only family in use may exceed them. Zero is no
	// limit.
	MaxCost, MaxCostOfHost int
	// MaxIdleCost limits the cost of families without clients; the least recently used go first. Zero keeps none.
	MaxIdleCost int
}

// Set has the families in use, and some idle ones, by key. It is safe for concurrent use.
type Set[K comparable, F any] struct {
	// read-only
	label  string // of the keys, for messages
	limits Limits
	cost   func(F) int
	drop   func(F)
	turns  *turns.Turns // to estimate and make families: one processor stays free, and hosts take turns

	mu         sync.Mutex
	clock      uint64 // counts the uses
	members    map[K]*member[F]
	hosts      map[string]map[K]int // uses by IP address and family
	dropped    int                  // cost of the families dropped since the last reclaim
	reclaiming bool                 // reclaim is scheduled
}

type member[F any] struct {
	ready  chan struct{}   // closed after Make
	family F               // read-only after ready
	err    error           // of Make; read-only after ready
	ctx    context.Context // of Make
	cancel func()          // ends ctx

	// guarded by Set.mu
	users    int
	finished bool   // Make has returned
	lastUse  uint64 // in clock
	cost     int    // the last result of cost; before, an estimate
}

// New returns an empty set. Messages call the keys by the label. cost returns the cost of a family at any time. drop is
// called after a family without users is removed.
func New[K comparable, F any](label string, limits Limits, cost func(F) int, drop func(F)) *Set[K, F] {
	return &Set[K, F]{
		label: label, limits: limits, cost: cost, drop: drop, turns: turns.New(max(runtime.GOMAXPROCS(0)-1, 1)),
		members: make(map[K]*member[F]), hosts: make(map[string]map[K]int),
	}
}

// Maker makes a family.
type Maker[F any] struct {
	Estimate func() int // estimates the cost before Make
	// Make makes the family. When ctx ends, no client waits: Make stops and returns the error of ctx.
	Make func(ctx context.Context) (F, error)
}

// Acquire returns the family of a key, and a function that ends this use. The first caller makes the family if its
// estimated cost is within the limits; the following callers wait. host is the IP address of the client; empty if its
// uses are not counted.
func (s *Set[K, F]) Acquire(ctx context.Context, key K, host string, maker Maker[F]) (
	family F, release func(), err error,
) {
	member, release, _, err := s.join(ctx, key, host, notEstimated)
	if member == nil && err == nil {
		if s.turns.Do(ctx, host, func() { member, release, err = s.create(ctx, key, host, maker) }) != nil {
			err = status.FromContextError(ctx.Err()).Err()
		}
	}
	if err != nil {
		return family, nil, err
	}
	select {
	case <-member.ready:
		err = member.err
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		err = status.FromContextError(ctx.Err()).Err()
	}
	if err != nil {
		release()
		return family, nil, err
	}
	return member.family, release, nil
}

// InTurn runs work for a host in its turn among the makers of families.
func (s *Set[K, F]) InTurn(ctx context.Context, host string, work func()) error {
	return s.turns.Do(ctx, host, work)
}

var errNotMade = errors.New("making a shared family failed")

// create joins a family that another client made meanwhile, or else estimates and makes it. Make stops when its last
// client leaves. After a panic, the next client makes the family.
func (s *Set[K, F]) create(ctx context.Context, key K, host string, maker Maker[F]) (
	entry *member[F], release func(), err error,
) {
	entry, release, first, err := s.join(ctx, key, host, notEstimated)
	if entry == nil && err == nil {
		entry, release, first, err = s.join(ctx, key, host, maker.Estimate())
	}
	if !first {
		return entry, release, err
	}
	entry.err = errNotMade
	stop := context.AfterFunc(ctx, release)
	defer func() {
		stop()
		if entry.err != nil {
			release()
		}
		s.mu.Lock()
		entry.finished = true
		if entry.err != nil && s.members[key] == entry {
			delete(s.members, key)
		}
		unused := entry.err == nil && entry.users == 0
		s.mu.Unlock()
		entry.cancel()
		close(entry.ready)
		if unused {
			s.discard(entry.family)
		}
	}()
	entry.family, entry.err = maker.Make(entry.ctx)
	return entry, release, nil
}

const notEstimated = -1

// join adds a use of a family, and reports whether the caller has to make the family. Without an estimate, join returns
// no member if there is no family, and only checks the number of families.
func (s *Set[K, F]) join(ctx context.Context, key K, host string, estimate int) (
	entry *member[F], release func(), first bool, err error,
) {
	s.mu.Lock()
	defer s.mu.Unlock()
	uses := s.hosts[host]
	if host != "" && uses[key] == 0 && len(uses) >= s.limits.MaxOfHost {
		return nil, nil, false, status.Errorf(codes.ResourceExhausted,
			"too many different %s in use by %s: the limit is %d", s.label, host, s.limits.MaxOfHost)
	}
	entry = s.members[key]
	if entry != nil && entry.users == 0 {
		if err := s.checkLimits(host, s.cost(entry.family)); err != nil {
			return nil, nil, false, err
		}
	}
	if first = entry == nil; first {
		if err := s.checkLimits(host, estimate); err != nil || estimate == notEstimated {
			return nil, nil, false, err
		}
		entry = &member[F]{ready: make(chan struct{}), cost: estimate}
		entry.ctx, entry.cancel = context.WithCancel(context.WithoutCancel(ctx)) //nolint:gosec // leave and create call it
		s.members[key] = entry
	}
	if uses == nil {
		uses = make(map[K]int)
		s.hosts[host] = uses
	}
	uses[key]++
	entry.users++
	s.clock++
	entry.lastUse = s.clock
	return entry, sync.OnceFunc(func() { s.discard(s.leave(key, entry, host)...) }), first, nil
}

// checkLimits returns an error if a host may not use one more family. Without an estimate, only the number counts.
func (s *Set[K, F]) checkLimits(host string, estimate int) error {
	inUse, cost, hostCost := 0, 0, 0
	for _, member := range s.members {
		if member.users == 0 {
			continue
		}
		inUse++
		if member.finished {
			member.cost = s.cost(member.family)
		}
		cost += member.cost
	}
	for key := range s.hosts[host] { // few keys: to hash the keys of all members would take long
		if m := s.members[key]; m != nil && m.users > 0 {
			hostCost += m.cost
		}
	}
	exceeds := func(cost, limit int) bool {
		return estimate != notEstimated && limit > 0 && cost > 0 && cost+estimate > limit
	}
	switch {
	case inUse >= s.limits.Max:
		return status.Errorf(codes.ResourceExhausted, "too many different %s in use: the limit is %d", s.label, s.limits.Max)
	case exceeds(cost, s.limits.MaxCost):
		return status.Errorf(codes.ResourceExhausted,
			"the different %s in use cost %d, and one more would cost %d: the limit is %d", s.label, cost, estimate,
			s.limits.MaxCost)
	case host != "" && exceeds(hostCost, s.limits.MaxCostOfHost):
		return status.Errorf(codes.ResourceExhausted,
			"the different %s in use by %s cost %d, and one more would cost %d: the limit is %d", s.label, host, hostCost,
			estimate, s.limits.MaxCostOfHost)
	}
	return nil
}

// Has reports whether the set has a family of a key, in use or idle.
func (s *Set[K, F]) Has(key K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.members[key] != nil
}

// Families returns the families in use and the idle ones.
func (s *Set[K, F]) Families() (list []F) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members {
		if m.finished && m.err == nil {
			list = append(list, m.family)
		}
	}
	return list
}

// Forget drops the family of a key if it has no users.
func (s *Set[K, F]) Forget(key K) {
	s.mu.Lock()
	member := s.members[key]
	unused := member != nil && member.users == 0
	if unused {
		delete(s.members, key)
	}
	s.mu.Unlock()
	if unused {
		s.discard(member.family)
	}
}

const (
	// reclaimDelay gives the last streams time to release dropped families.
	reclaimDelay = 5 * time.Second
	// reclaimShare is the share of the idle cost that justifies a garbage collection.
	reclaimShare = 10
)

// discard drops families, and schedules the return of their memory to the system: the runtime would keep it for
// minutes.
func (s *Set[K, F]) discard(families ...F) {
	cost := 0
	for _, family := range families {
		cost += s.cost(family)
		s.drop(family)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped += cost
	if s.dropped > s.limits.MaxIdleCost/reclaimShare && s.limits.MaxIdleCost > 0 && !s.reclaiming {
		s.reclaiming = true
		time.AfterFunc(reclaimDelay, s.reclaim)
	}
}

// reclaim returns the memory of dropped families to the system.
func (s *Set[K, F]) reclaim() {
	s.mu.Lock()
	s.dropped, s.reclaiming = 0, false
	s.mu.Unlock()
	debug.FreeOSMemory()
}

// leave ends a use, and removes idle families beyond the limit of their cost.
func (s *Set[K, F]) leave(key K, entry *member[F], host string) (removed []F) {
	s.mu.Lock()
	defer s.mu.Unlock()
	uses := s.hosts[host]
	if uses[key]--; uses[key] <= 0 {
		delete(uses, key)
	}
	if len(uses) == 0 {
		delete(s.hosts, host)
	}
	if entry.users--; entry.users > 0 {
		return nil
	}
	if !entry.finished || entry.err != nil { // no client waits any longer, or Make failed
		if entry.cancel(); s.members[key] == entry {
			delete(s.members, key)
		}
		return nil
	}
	s.clock++
	entry.lastUse, entry.cost = s.clock, s.cost(entry.family)
	var idle []K
	cost := 0
	for key, entry := range s.members {
		if entry.users == 0 {
			idle = append(idle, key)
			cost += entry.cost
		}
	}
	slices.SortFunc(idle, func(a, b K) int { return cmp.Compare(s.members[a].lastUse, s.members[b].lastUse) })
	for _, key := range idle {
		if cost <= s.limits.MaxIdleCost {
			break
		}
		cost -= s.members[key].cost
		removed = append(removed, s.members[key].family)
		delete(s.members, key)
	}
	return removed
}
