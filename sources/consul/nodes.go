package consul

import (
	"time"

	"tributary/sources/consul/judge"
)

// A node keeps its CreateIndex for as long as it exists. So the nodes of the remaining services distinguish a Consul
// that lost its data, and got a part of it again from its agents, from one that lost services.

// nodes has the CreateIndex of nodes that have instances.
type nodes struct {
	accepted judge.CreateIndexes  // the indexes that prove that Consul kept its data
	latest   map[string]nodeIndex // the indexes as last read
	limit    int                  // number of accepted nodes; above it, those without instances are forgotten
}

// nodeIndex is the CreateIndex of a node.
type nodeIndex struct {
	created   uint64
	firstRead time.Time // when the node was first read with this index
	sinceLoss bool      // it was read since the last loss of data
}

func newNodes() nodes {
	return nodes{accepted: make(judge.CreateIndexes), latest: make(map[string]nodeIndex)}
}

// learn stores the nodes of an answer.
func (n *nodes) learn(created judge.CreateIndexes, now time.Time) {
	for node, index := range created {
		latest, seen := n.latest[node]
		if !seen || latest.created != index {
			latest = nodeIndex{created: index, firstRead: now}
		}
		latest.sinceLoss = true
		n.latest[node] = latest
		if _, seen := n.accepted[node]; !seen {
			n.accepted[node] = index
		}
	}
}

// accept makes the latest index of each node that did not change after limit the accepted one. A node that was created
// again stays a sign of lost data for a while: services and names are read in any order.
func (n *nodes) accept(limit time.Time) {
	for node, latest := range n.latest {
		if !latest.firstRead.After(limit) {
			n.accepted[node] = latest.created
		}
	}
}

// reset accepts all nodes as they are after a loss of data.
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
func (s *catalogScope) forgetNodes() {
	if len(s.nodes.accepted) <= s.nodes.limit {
		return
	}
	used := newNodes()
	for _, service := range s.services {
		if service.restored {
			return
		}
		for node := range service.instances.nodes() {
			if index, seen := s.nodes.accepted[node]; seen {
				used.accepted[node] = index
			}
			if latest, seen := s.nodes.latest[node]; seen {
				used.latest[node] = latest
			}
		}
	}
	const margin = 16
	used.limit = 2*len(used.accepted) + margin
	s.nodes = used
}

// witnesses returns the remaining services whose nodes can show a loss of data, in random order, those in trouble last.
// It returns none if no witness is needed: a single service that is missing without an outage needs none.
func (s *catalogScope) witnesses(listing listing) (names []string) {
	compared := s.compare(listing)
	accepted := listing.Confirmed && judge.Judge(compared, listing.Answer) == judge.Changed
	suspicious := compared.Missing > 1 || compared.Missing == 1 && compared.Outage
	if !accepted || !suspicious || judge.Reset(compared, listing.Answer) || len(s.nodes.accepted) == 0 {
		return nil
	}
	var troubled []string // in an outage, all remaining services
	for name := range s.listing.names {
		_, listed := listing.names[name]
		switch service := s.services[name]; {
		case !listed || service != nil && service.quarantine != nil:
		case service != nil && service.trouble != nil:
			troubled = append(troubled, name)
		default:
			names = append(names, name)
		}
	}
	return append(names, troubled...)
}
