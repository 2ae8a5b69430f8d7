package consul

import (
	"context"
	"fmt"
	"slices"
	"time"

	"tributary/sources/consul/dial"
	"tributary/sources/consul/judge"
)

// list follows the names of the services of p.
func (r *run) list(ctx context.Context, p *part) {
	pace, retry := pacer{last: paceNames}, newBackOff(firstRetry, lastNamesRetry)
	var index uint64
	sure := false // the next read has to be a certain one
	for ctx.Err() == nil {
		q := query{index: index, level: r.usualLevel(p)}
		if p.again.take() || sure {
			q = query{level: certain}
		}
		l, err := r.readNames(ctx, p, q)
		for _, examine := range []func(context.Context, *part, *listing) error{r.roomForNames, r.unmaskNames, r.vouchForNames, r.witness} {
			if err == nil {
				err = examine(ctx, p, &l)
			}
		}
		m := foreign
		if err == nil {
			m = r.tookNames(ctx, p, l)
		} else if !r.namesFailed(p, err) {
			continue // somebody wants us to look again
		}
		switch sure = true; m {
		case doubtful:
		case denied, foreign:
			index = 0
			r.pause(ctx, &p.again, retry.NextBackOff())
		default:
			sure = false
			retry.Reset()
			index = next(q, index, l.Index)
			r.pause(ctx, &p.again, pace.next(time.Now()))
		}
	}
}

// next is the index from which to wait for news, after a query that was answered with got.
func next(q query, asked, got uint64) uint64 {
	if q.index == 0 {
		return max(got, 1) // what we have is the state at that index, however small it is
	}
	return dial.NextIndex(asked, got)
}

func (r *run) readNames(ctx context.Context, p *part, q query) (listing, error) {
	if !r.gate.calm(ctx) {
		return listing{}, ctx.Err()
	}
	turn := 0
	if q.level == certain { // it is not broken off for those who want another one: then it might never end
		r.mu.Lock()
		p.begun++
		turn = p.begun
		r.mu.Unlock()
	} else {
		var end func()
		ctx, end = p.again.begin(ctx)
		defer end()
	}
	r.metrics.names.Add(1)
	l, err := r.catalog.services(ctx, p.domain, q)
	l.turn = turn
	return l, err
}

// tookNames applies a listing, and starts to follow the services that are new.
func (r *run) tookNames(ctx context.Context, p *part, l listing) meaning {
	r.mu.Lock()
	defer r.mu.Unlock()
	first, before, left := !p.known, p.listing.Index, len(p.listing.left)
	m, added, check := p.takeNames(l, time.Now())
	if m == doubtful {
		r.metrics.confirmations.Add(1)
		return m
	}
	if m == denied {
		r.metrics.denied.Add(1)
	}
	if p.listing.Index != before {
		p.note.move() // a registration, and it is not said of what
	}
	if first && p.known {
		added = r.adopt(p, added)
	}
	r.recounted = r.recounted || first && p.known || len(p.listing.left) != left
	for _, s := range check {
		s.again.raise()
	}
	for _, name := range added {
		r.follow(ctx, p, name)
	}
	if m == changed || m == partial || first && p.known { // with the names that an earlier run kept, the first list may be as before
		r.renamed, r.unkept = true, true
	}
	for name, s := range p.services {
		if s.delisted {
			r.dirty[name] = true
		}
	}
	r.wakeup.Notify()
	return m
}

// adopt adds to the names of p those that an earlier run published, so that they are withdrawn only if reading them
// tells that they have gone.
func (r *run) adopt(p *part, names []string) []string {
	if !p.based && len(p.listing.names) == 0 && len(r.restored) > 1 && !p.suspected(time.Now()) { // else what was kept tells
		p.suspicion = judge.Suspicion{Until: time.Now().Add(r.settings.ResetHold), Why: fmt.Sprintf(
			"Consul has no services, where an earlier run found %d: it seems to have lost its data", len(r.restored))}
	}
	for group := range r.restored {
		if _, there := p.listing.names[group]; !there && p.services[group] == nil {
			names = append(names, group)
		}
	}
	slices.Sort(names)
	return names
}

// follow starts to follow a service. The caller holds mu.
func (r *run) follow(ctx context.Context, p *part, name string) {
	ctx, cancel := context.WithCancel(ctx)
	_, listed := p.listing.names[name]
	s := &service{name: name, part: p, stop: cancel, listed: listed, adopted: !listed, restored: r.restored[name]}
	p.services[name] = s
	sure := s.restored && len(r.before[name]) == 0 // what is missing in an answer does not show then
	r.workers.Go(func() {
		defer cancel()
		r.watch(ctx, s, sure)
	})
}

// namesFailed notes why the names could not be read. It is false if nothing failed: somebody wants us to look again.
func (r *run) namesFailed(p *part, err error) bool {
	t := r.explain(err)
	if t == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p.fail(t, time.Now())
	r.wakeup.Notify()
	return true
}
