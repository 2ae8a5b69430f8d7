package consul

import (
	"cmp"
	"context"
	"time"

	"tributary/sources/consul/judge"
)

// A Consul that lost its data is another cluster than before. That is asked for whenever something is missing, after it was found to
// be: what the cluster that was believed before says of itself is to be believed, however young it is.

// identify asks which cluster p is of.
func (r *run) identify(ctx context.Context, p *part) (string, error) {
	if !r.gate.calm(ctx) {
		return "", ctx.Err()
	}
	ctx, cancel := within(ctx, shortTimeout)
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
		p.suspect(judge.Suspicion{Until: now.Add(p.resetHold), Why: "Consul seems to have lost its data: it is another cluster than before"}, now)
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
		r.ring()
	}
}
