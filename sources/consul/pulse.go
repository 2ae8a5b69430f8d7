package consul

import (
	"context"
	"fmt"
	"time"

	"tributary/sources"
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
			r.ring()
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
	ctx, cancel := within(ctx, shortTimeout)
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
