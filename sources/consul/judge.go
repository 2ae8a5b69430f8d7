package consul

import (
	"encoding/json"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/hashicorp/consul/api"
)

// This file decides what the answers of Consul mean. It does no I/O and knows no time.

// reading is what Consul answered about one service.
type reading struct {
	instances instances
	index     uint64
	filtered  bool // Consul says that our token does not show us all
	// confirming says that the question was plain: not blocking, and answered by the leader from all that it knows. Only
	// such an answer can vouch for what is not there. A watch is served by a stream of events, which goes silent without a
	// word when a token is deleted, and a stale read by a server that may have just started, with nothing loaded yet.
	confirming bool
	// leaderless says that Consul does not name a leader. Those that answer a watch never do. In a confirming answer it
	// is a sign that something between us took headers away, and with them that of filtered.
	leaderless bool
	// anonymous says that no token was sent. Then Consul does not tell whether filtered: see strangers.go.
	anonymous bool
}

// meaning is what an answer means, given what is known.
type meaning int

const (
	// unchanged: there is nothing to do.
	unchanged meaning = iota
	// changed: the answer is to be believed.
	changed
	// doubtful: something is missing, and the answer cannot vouch for that. Ask plainly.
	doubtful
	// partial: what there is is to be believed. What is missing may be hidden from us, and stays.
	partial
	// gone: there is nothing, and this is certain.
	gone
	// absent: there is nothing, as before or as far as this Consul knows, and the names will tell when that changes.
	absent
	// denied: there may be something, but our token does not show it. What is known stays.
	denied
	// unvouched: something is missing for certain, but whether Consul itself is as it was is not. See service.odd.
	unvouched
	// foreign: what answered is not Consul, or something in front of it that changes its answers. What is known stays.
	foreign
)

// judge decides what a reading means for a service of which before is known; known is false if it was never read.
func judge(before instances, known bool, r reading) meaning {
	if r.index == 0 && len(r.instances.list) == 0 {
		return foreign // Consul gives every answer an index, and never 0
	}
	missing := len(r.instances.without(before)) > 0 || len(r.instances.list) == 0
	switch {
	case missing && !r.confirming:
		return doubtful
	case missing && r.leaderless:
		return foreign
	case r.filtered && len(r.instances.list) == 0:
		return denied
	case r.filtered && missing:
		return partial
	case len(r.instances.list) == 0:
		return gone
	case known && before.sum == r.instances.sum:
		return unchanged
	default:
		return changed
	}
}

// instances are those of one service, in an order that does not depend on Consul. They are never modified.
type instances struct {
	list []*api.ServiceEntry
	sum  uint64 // of all that matters in list
}

var seed = maphash.MakeSeed()

// newInstances takes over entries.
func newInstances(entries []*api.ServiceEntry) instances {
	entries = slices.DeleteFunc(entries, func(e *api.ServiceEntry) bool { return e == nil || e.Node == nil || e.Service == nil })
	slices.SortStableFunc(entries, func(a, b *api.ServiceEntry) int { return strings.Compare(identity(a), identity(b)) })
	return instances{list: entries, sum: digest(entries)}
}

// digest is a hash of what a reader of entries can notice. The indexes are left out, as is what a check says in words:
// they change all the time, and mean nothing for those who route by them.
func digest(entries []*api.ServiceEntry) uint64 {
	if len(entries) == 0 {
		return 0
	}
	var h maphash.Hash
	h.SetSeed(seed)
	enc := json.NewEncoder(&h)
	for _, e := range entries {
		node, service := *e.Node, *e.Service
		node.CreateIndex, node.ModifyIndex = 0, 0
		service.CreateIndex, service.ModifyIndex, service.ContentHash = 0, 0, ""
		_ = enc.Encode(node) // of plain data into a hash; neither can fail
		_ = enc.Encode(service)
		for _, c := range e.Checks {
			if c != nil {
				_ = enc.Encode([]string{c.Node, c.CheckID, c.ServiceID, c.Status})
			}
		}
	}
	return h.Sum64()
}

// identity names an instance: Consul knows it by its node and an ID that is unique there.
func identity(e *api.ServiceEntry) string { return e.Node.Node + "\x00" + e.Service.ID }

// without returns those of before that are not in i. One that was registered anew under another ID, with the same
// address, is not missing.
func (i instances) without(before instances) []*api.ServiceEntry {
	if len(before.list) == 0 || i.sum == before.sum {
		return nil
	}
	type place struct {
		address string
		port    int
	}
	at := func(e *api.ServiceEntry) place {
		if e.Service.Address != "" {
			return place{e.Service.Address, e.Service.Port}
		}
		return place{e.Node.Address, e.Service.Port}
	}
	ids, places := make(map[string]bool, len(i.list)), make(map[place]bool, len(i.list))
	for _, e := range i.list {
		ids[identity(e)], places[at(e)] = true, true
	}
	var missing []*api.ServiceEntry
	for _, e := range before.list {
		if !ids[identity(e)] && !places[at(e)] {
			missing = append(missing, e)
		}
	}
	return missing
}

// with returns i and others.
func (i instances) with(others []*api.ServiceEntry) instances {
	if len(others) == 0 {
		return i
	}
	return newInstances(slices.Concat(i.list, others))
}

// listing is what Consul answered about the names of services.
type listing struct {
	names      map[string][]string // those that are wanted, with their tags
	index      uint64
	filtered   bool
	confirming bool // these three as in reading
	leaderless bool
	anonymous  bool
}

// judgeNames decides what a listing means, given the last one that was believed; known is false if there is none, and
// outage says that Consul could not be read in between. wiped is said of a Consul that lost its data: then what is missing
// means nothing until its agents have told it everything again.
func judgeNames(before listing, known, outage bool, l listing) (m meaning, wiped bool) {
	if l.index == 0 && len(l.names) == 0 {
		return foreign, false
	}
	missing := 0
	for name := range before.names {
		if _, there := l.names[name]; !there {
			missing++
		}
	}
	back := known && l.index < before.index
	doubt := missing > 0 || back || len(l.names) == 0
	switch {
	case doubt && !l.confirming:
		return doubtful, false
	case doubt && l.leaderless:
		return foreign, false
	case l.filtered && len(l.names) == 0:
		return denied, false
	case l.filtered && missing > 0:
		return partial, back
	// One service that goes leaves an empty list behind; several do not go at the same moment. The index alone does not
	// tell: that of a Consul that was young can be overtaken.
	case back || missing > 1 && (len(l.names) == 0 || outage && 2*missing > len(before.names)):
		return changed, true
	case known && missing == 0 && len(l.names) == len(before.names):
		return unchanged, false
	default:
		return changed, false
	}
}
