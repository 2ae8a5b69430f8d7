package consul

import (
	"context"
	"math/rand/v2"
	"slices"
)

// compare reads everything once more from time to time, plainly, and has the loops look again at what is different from
// what they believe.
func (r *run) compare(ctx context.Context, p *part) {
	for {
		spread := r.settings.Resync / 10                              // so that instances of tributary that started together do not stay together
		if !sleep(ctx, r.settings.Resync-spread+rand.N(2*spread+1)) { //nolint:gosec // no secret
			return
		}
		r.mu.Lock()
		skip := p.down != nil || !p.known
		var names []string
		for name := range p.services {
			names = append(names, name)
		}
		r.mu.Unlock()
		if skip {
			continue
		}
		slices.Sort(names)
		r.compareNames(ctx, p)
		for _, name := range names {
			r.compareService(ctx, p, name)
		}
	}
}

func (r *run) compareNames(ctx context.Context, p *part) {
	done, ok := r.gate.read(ctx, r.gate.slow)
	if !ok {
		return
	}
	defer done()
	r.metrics.names.Add(1)
	l, err := r.catalog.services(ctx, p.domain, query{level: leaders})
	if err != nil {
		return // the loop of the names meets the same, and tells
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if m, _ := meaningOfNames(l.compare(p.listing, p.known, false), l); m != unchanged && l.Index >= p.listing.Index {
		p.again.raise()
	}
}

func (r *run) compareService(ctx context.Context, p *part, name string) {
	r.mu.Lock()
	s := p.services[name]
	if s == nil || s.trouble != nil || s.held > 0 || !s.known || s.delisted {
		r.mu.Unlock()
		return // there is nothing to compare with
	}
	answers := s.answers
	r.mu.Unlock()
	answer, err := r.readNow(ctx, p, name, r.gate.slow, leaders)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.answers == answers && answer.Index >= s.index && answer.instances.sum != s.instances.sum {
		s.healing = true
		s.again.raise() // it asks again itself, so that there is one way for changes to come in
	}
}
