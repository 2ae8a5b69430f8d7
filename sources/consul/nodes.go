package consul

import (
	"context"
	"maps"
	"math/rand/v2"
	"time"

	"tributary/sources/consul/dial"
	"tributary/sources/consul/judge"
)

// Nodes keep when they were created for as long as they exist. So those of the services that are left tell whether a Consul
// that has less than before went on, or lost its data and was told some of it again.

// nodes says when the nodes were created that have instances.
type nodes struct {
	believed judge.Made      // what a Consul that goes on would say
	fresh    map[string]seen // as last read
	enough   int             // how many there may be before those without instances are forgotten
}

// seen is when a node was created, and since when we know that.
type seen struct {
	at    uint64
	since time.Time
}

func newNodes() nodes { return nodes{believed: make(judge.Made), fresh: make(map[string]seen)} }

// learn takes up what was read of instances.
func (n *nodes) learn(made judge.Made, now time.Time) {
	for node, at := range made {
		if is, known := n.fresh[node]; !known || is.at != at {
			n.fresh[node] = seen{at, now}
		}
		if _, known := n.believed[node]; !known {
			n.believed[node] = at
		}
	}
}

// believe makes what is so since a time what is believed. What was made anew is a sign for as long as something may be missed for the same
// reason: services and names are read in any order.
func (n *nodes) believe(since time.Time) {
	for node, is := range n.fresh {
		if !is.since.After(since) {
			n.believed[node] = is.at
		}
	}
}

// forgetNodes forgets the nodes that have no instances any more, once they may be as many as those that have. While it is not
// settled what is left of what an earlier run published, the nodes on which that was stay.
func (p *part) forgetNodes() {
	if len(p.nodes.believed) <= p.nodes.enough {
		return
	}
	with := newNodes()
	for _, s := range p.services {
		if s.restored {
			return
		}
		for node := range s.instances.nodes() {
			if at, ok := p.nodes.believed[node]; ok {
				with.believed[node] = at
			}
			if at, ok := p.nodes.fresh[node]; ok {
				with.fresh[node] = at
			}
		}
	}
	const few = 16 // are not looked at again and again
	with.enough = 2*len(with.believed) + few
	p.nodes = with
}

// witnesses is how many services are read to find out whether their nodes are still the same.
const witnesses = 3

// witness reads some of the services that are left, if others have gone, to see whether their nodes are those that there were:
// if all were made anew, Consul lost its data, however high its index.
func (r *run) witness(ctx context.Context, p *part, l *listing) error {
	l.nodes = make(judge.Made)
	left := r.candidates(p, *l)
	testified := 0
	var failure error // of the last that could not
	for _, name := range left[:min(len(left), 2*witnesses)] {
		r.metrics.confirmations.Add(1)
		answer, err := r.readNow(ctx, p, name, r.gate.ramp, certain)
		switch f := dial.Classify(err); {
		case f.Kind == dial.Canceled:
			return err
		case err != nil: // another one knows
			if !ownFault(f) {
				failure = err
			}
		case len(answer.instances.list) > 0:
			maps.Copy(l.nodes, answer.instances.nodes())
			if testified++; testified == witnesses {
				return nil
			}
		}
	}
	if testified > 0 {
		return nil
	}
	return failure
}

// candidates are the services that can be witnesses to what l says, others each time, and those first that can be read, as far as we know;
// none if no witness is needed. One service that has gone while all was well is nothing to ask about.
func (r *run) candidates(p *part, l listing) (left []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := p.compare(l)
	believed := l.Confirming && judge.Judge(c, l.Answer) == judge.Believe
	if c.Missing == 0 || c.Missing == 1 && !c.Outage || !believed || judge.Reset(c, l.Answer) || len(p.nodes.believed) == 0 {
		return nil
	}
	var sick []string // in an outage they all are
	for name := range p.listing.names {
		_, there := l.names[name]
		switch s := p.services[name]; {
		case !there || s != nil && s.refusal != nil:
		case s != nil && s.trouble != nil:
			sick = append(sick, name)
		default:
			left = append(left, name)
		}
	}
	for _, names := range [][]string{left, sick} {
		rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] }) //nolint:gosec // no secret
	}
	return append(left, sick...)
}
