package consul

import (
	"time"

	"tributary/sources/consul/judge"
)

// A node keeps its CreateIndex for as long as it exists. So the nodes of the remaining services distinguish a Consul
// that lost its data, and got a part of it again from its agents, from one that lost services.

// nodes has the CreateIndex of nodes that have instances.
type nodes struct {
	accepted judge.CreateIndexes    // as a Consul that kept its data has them
	latest   map[string]nodeReading // as last read
	limit    int                    // number of accepted nodes; above it, those without instances are forgotten
}

type nodeReading struct {
	created   uint64
	firstRead time.Time // with this index
	sinceLoss bool      // read since the last loss of data, which all of these nodes follow
}

func newNodes() nodes {
	return nodes{accepted: make(judge.CreateIndexes), latest: make(map[string]nodeReading)}
}

// learn stores the nodes of an answer.
func (n *nodes) learn(created judge.CreateIndexes, now time.Time) {
	for node, index := range created {
		latest, seen := n.latest[node]
		if !seen || latest.created != index {
			latest = nodeReading{created: index, firstRead: now}
		}
		latest.sinceLoss = true
		n.latest[node] = latest
		if _, seen := n.accepted[node]; !seen {
			n.accepted[node] = index
		}
	}
}

// accept accepts the nodes that did not change after a limit. A node that was created again stays a sign for a while:
// services and names are read in any order.
func (n *nodes) accept(limit time.Time) {
	for node, latest := range n.latest {
		if !latest.firstRead.After(limit) {
			n.accepted[node] = latest.created
		}
	}
}

// reset accepts all nodes after a loss of data.
func (n *nodes) reset(now time.Time) {
	for node, latest := range n.latest {
		latest.sinceLoss = latest.created != n.accepted[node]
		n.latest[node] = latest
	}
	n.accept(now)
}

// compareSinceLoss compares nodes with those that were read since the last loss of data.
func (n *nodes) compareSinceLoss(created judge.CreateIndexes) (compared judge.Compared) {
	before := make(judge.CreateIndexes)
	for node := range created {
		if latest := n.latest[node]; latest.sinceLoss {
			before[node] = latest.created
		}
	}
	before.Compare(created, 0, &compared)
	return compared
}

// forgetNodes forgets the nodes without instances when they may outnumber the others. The nodes of an earlier run stay
// until it is settled which of its instances remain.
func (p *catalogScope) forgetNodes() {
	if len(p.nodes.accepted) <= p.nodes.limit {
		return
	}
	used := newNodes()
	for _, service := range p.services {
		if service.restored {
			return
		}
		for node := range service.instances.nodes() {
			if index, seen := p.nodes.accepted[node]; seen {
				used.accepted[node] = index
			}
			if latest, seen := p.nodes.latest[node]; seen {
				used.latest[node] = latest
			}
		}
	}
	const margin = 16
	used.limit = 2*len(used.accepted) + margin
	p.nodes = used
}

// witnesses returns the services with nodes that can show a loss of data, in random order, those in
// trouble last; none if no witness is needed. One service that goes in quiet times needs none.
func (p *catalogScope) witnesses(listing listing) (names []string) {
	c := p.compare(listing)
	accepted := listing.Confirmed && judge.Judge(c, listing.Answer) == judge.Believe
	needed := accepted && (c.Missing > 1 || c.Missing == 1 && c.Outage) && !judge.Reset(c, listing.Answer)
	if !needed || len(p.nodes.accepted) == 0 {
		return nil
	}
	var troubled []string // in an outage, all of them
	for name := range p.listing.names {
		_, listed := listing.names[name]
		switch s := p.services[name]; {
		case !listed || s != nil && s.quarantine != nil:
		case s != nil && s.trouble != nil:
			troubled = append(troubled, name)
		default:
			names = append(names, name)
		}
	}
	return append(names, troubled...)
}
