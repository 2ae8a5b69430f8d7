package consul

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"tributary/sources"
	"tributary/sources/consul/dial"
	"tributary/sources/consul/judge"
)

// A server that is left over when its cluster has lost its leader answers stale questions, and those that wait, as if
// nothing were the matter, with what was there when it last had one. So it is asked how it is.

const (
	// pulseEvery is how often. An election takes a second or two, and is not to be taken for an outage: so what is not as it
	// should be has to be so twice.
	pulseEvery   = 5 * time.Second
	pulseConfirm = 2 * time.Second
)

// feel asks how the servers of p are, again and again.
func (r *run) feel(ctx context.Context, p *part) {
	var last *trouble
	for wait := pulseEvery; sleep(ctx, wait); {
		now, err := r.pulse(ctx, p)
		wait = pulseEvery
		if err != nil {
			continue // those who read the names meet the same, and tell
		}
		if now != nil && last == nil {
			wait = pulseConfirm
		} else {
			r.mu.Lock()
			p.behind = now
			r.mu.Unlock()
			r.wakeup.Notify()
		}
		r.met(ctx, p)
		last = now
	}
}

// pulse asks once; it returns nil if all is well.
func (r *run) pulse(ctx context.Context, p *part) (*trouble, error) {
	if !r.gate.calm(ctx) {
		return nil, ctx.Err()
	}
	ctx, cancel := dial.Within(ctx, shortTimeout)
	defer cancel()
	pulse, err := r.catalog.pulse(ctx, p.domain)
	if err != nil {
		return nil, err
	}
	r.metrics.vitals.Take(p.String(), pulse)
	switch {
	case !pulse.KnownLeader:
		return &trouble{state: sources.Unreachable, message: fmt.Sprintf(
			"Consul has no leader: what it answers is as old as that, %s or more", pulse.LastContact)}, nil
	case pulse.LastContact > r.settings.MaxStale:
		return &trouble{state: sources.Degraded, message: fmt.Sprintf(
			"the server that answers heard of its leader %s ago, more than maxStale (%s): the leader is asked instead", pulse.LastContact,
			r.settings.MaxStale)}, nil
	}
	return nil, nil
}

// usualLevel is how sure the answers about p have to be: where servers lag behind, the leader is asked.
func (r *run) usualLevel(p *part) level {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.behind != nil {
		return leaders
	}
	return usual
}

// A Consul that lost its data is another cluster than before. That is asked for whenever something is missing, after it was found to
// be: what the cluster that was believed before says of itself is to be believed, however young it is.

// identify asks which cluster p is of.
func (r *run) identify(ctx context.Context, p *part) (string, error) {
	if !r.gate.calm(ctx) {
		return "", ctx.Err()
	}
	ctx, cancel := dial.Within(ctx, shortTimeout)
	defer cancel()
	return r.catalog.cluster(ctx, p.domain)
}

// vouchFor has an answer that lacks something say of which cluster it is.
func (r *run) vouchFor(ctx context.Context, s *service, answer *reading) (err error) {
	r.mu.Lock()
	loses := s.loses(*answer, meaningOf(s.instances, s.known, *answer))
	r.mu.Unlock()
	if loses {
		answer.cluster, err = r.identify(ctx, s.part)
	}
	return err
}

// vouchForNames does the same for the names of p. What the first of a run are is compared with what an earlier one knew.
func (r *run) vouchForNames(ctx context.Context, p *part, l *listing) (err error) {
	r.mu.Lock()
	first, loses := !p.known, l.Confirming && p.compare(*l).Missing > 0
	r.mu.Unlock()
	if !first && !loses {
		return nil
	}
	if l.cluster, err = r.identify(ctx, p); ctx.Err() == nil && !loses {
		return nil // it is not needed yet
	}
	return err
}

// meet notes which cluster p is of, if that is known. If it is another one than before, it lost its data.
func (p *part) meet(cluster string, now time.Time) (other bool) {
	if other = judge.Other(p.cluster, cluster); other {
		p.suspect("Consul seems to have lost its data: it is another cluster than before", now)
	}
	p.cluster = cmp.Or(cluster, p.cluster)
	return other
}

// met asks which cluster p is of while nothing is the matter, so that what comes later is not taken for a loss of its data.
func (r *run) met(ctx context.Context, p *part) {
	cluster, err := r.identify(ctx, p)
	if err != nil {
		return // those who need it meet the same
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before := p.cluster
	if !p.known { // the first names are compared with what was kept
		return
	}
	if p.meet(cluster, time.Now()) || before != p.cluster {
		r.unkept = true
		r.wakeup.Notify()
	}
}
