package consul

import (
	"context"
	"maps"
	"slices"

	"tributary/sources/consul/dial"
	"tributary/sources/consul/judge"
)

// Nodes keep when they were created for as long as they exist. So those of the services that are left tell whether a Consul
// that has less than before went on, or lost its data and was told some of it again.

// nodes says when the nodes were created that have instances.
type nodes struct {
	believed judge.Made // as it was when the names were believed last
	fresh    judge.Made // as last read; what is believed counts until the names are believed again
	enough   int        // how many there may be before those without instances are forgotten
}

func newNodes() nodes { return nodes{believed: make(judge.Made), fresh: make(judge.Made)} }

// recall takes over what an earlier run believed.
func (n *nodes) recall(made judge.Made) { maps.Copy(n.believed, made) }

// learn takes up what was read of instances.
func (n *nodes) learn(made judge.Made) {
	for node, at := range made {
		n.fresh[node] = at
		if _, known := n.believed[node]; !known {
			n.believed[node] = at
		}
	}
}

// believe makes what was read what is believed.
func (n *nodes) believe() { maps.Copy(n.believed, n.fresh) }

// forgetNodes forgets the nodes that have no instances any more, once they may be as many as those that have. While services
// were not read, what an earlier run knew of their nodes stays.
func (p *part) forgetNodes() {
	if len(p.nodes.believed) <= p.nodes.enough {
		return
	}
	with := newNodes()
	for _, s := range p.services {
		if !s.settled {
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
	for _, name := range left[:min(len(left), 2*witnesses)] {
		done, ok := r.gate.read(ctx, r.gate.ramp)
		if !ok {
			return ctx.Err()
		}
		r.counters.confirmations.Add(1)
		answer, err := r.catalog.service(ctx, p.domain, name, query{level: certain})
		done()
		switch made := answer.instances.nodes(); {
		case err != nil && !ownFault(dial.Classify(err)):
			return err
		case err != nil || len(made) == 0: // another one knows
		default:
			maps.Copy(l.nodes, made)
			if testified++; testified == witnesses {
				return nil
			}
		}
	}
	return nil
}

// candidates are the services that can be witnesses to what l says, those first that are far from each other; none if no
// witness is needed.
func (r *run) candidates(p *part, l listing) (left []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := p.compare(l)
	believed := l.Confirming && judge.Judge(c, l.Answer) == judge.Believe
	if c.Missing < 2 || !believed || judge.Reset(c, l.Answer) || len(p.nodes.believed) == 0 {
		return nil
	}
	for name := range p.listing.names {
		if _, there := l.names[name]; there && (p.services[name] == nil || p.services[name].refusal == nil) {
			left = append(left, name)
		}
	}
	slices.Sort(left)
	for i := range min(witnesses, len(left)) {
		j := max(i, i*(len(left)-1)/(witnesses-1))
		left[i], left[j] = left[j], left[i]
	}
	return left
}
