package consul

import (
	"cmp"
	"encoding/json"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/hashicorp/consul/api"

	"tributary/sources/consul/judge"
)

// This file decides what the answers of Consul mean for services. It does no I/O and knows no time.

// reading is what Consul answered about one service.
type reading struct {
	judge.Answer
	instances instances
	// lost is how many endpoints an earlier run published of which no instance is known, here or in another domain.
	lost int
	// cluster is which of them answered; empty if that was not asked, or cannot be known.
	cluster string
	// anonymous says that no token was sent. Then Consul does not tell whether something is hidden: see rights.go.
	anonymous bool
}

// meaning is what an answer means, given what is known: a verdict, or more.
type meaning int

const (
	unchanged = meaning(judge.Same)
	changed   = meaning(judge.Believe)
	doubtful  = meaning(judge.Doubt)
	partial   = meaning(judge.Partial)
	denied    = meaning(judge.Denied)
	foreign   = meaning(judge.Foreign)
	// gone: there is nothing, and this is certain.
	gone = foreign + 1
	// absent: there is nothing, as before or as far as this Consul knows, and the names will tell when that changes.
	absent = foreign + 2
	// unvouched: something is missing for certain, but whether Consul itself is as it was is not. See service.odd.
	unvouched = foreign + 3
)

// meaningOf decides what a reading means for a service of which before is known; known is false if it was never read. The
// indexes of readings are not compared: those of a watch and of a plain question count different things.
func meaningOf(before instances, known bool, r reading) meaning {
	m := meaning(judge.Judge(judge.Compared{
		Known: known, Before: len(before.list) + r.lost, Now: len(r.instances.list), Missing: len(r.instances.without(before)) + r.lost,
		Same: before.sum == r.instances.sum && r.lost == 0,
	}, r.Answer))
	if len(r.instances.list) == 0 && (m == unchanged || m == changed) {
		return gone
	}
	return m
}

// instances are those of one service, in an order that does not depend on Consul. They are never modified.
type instances struct {
	list []*api.ServiceEntry
	sum  uint64 // of all that matters in list
}

var seed = maphash.MakeSeed()

// newInstances takes over entries.
func newInstances(entries []*api.ServiceEntry) instances {
	slices.SortStableFunc(entries, func(a, b *api.ServiceEntry) int { return strings.Compare(identity(a), identity(b)) })
	return instances{list: entries, sum: digest(entries)}
}

// digest is a hash of what a reader of entries can notice. The indexes are left out, as is what a check says in words:
// they change all the time, and mean nothing for those who route by them. But whether a check for which somebody has to tell that he lives
// says anything at all is told: an agent that began anew has not heard of him yet if it does not.
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
				_ = enc.Encode([]any{c.Node, c.CheckID, c.ServiceID, c.Status, c.Type == "ttl" && c.Output == ""})
			}
		}
	}
	return h.Sum64()
}

// identity names an instance: Consul knows it by its node and an ID that is unique there.
func identity(e *api.ServiceEntry) string { return e.Node.Node + "\x00" + e.Service.ID }

// nodes says when the nodes of the instances were created.
func (i instances) nodes() judge.Made {
	all := make(judge.Made, len(i.list))
	for _, e := range i.list {
		all[e.Node.Node] = e.Node.CreateIndex
	}
	return all
}

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
		return place{cmp.Or(e.Service.Address, e.Node.Address), e.Service.Port}
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
	judge.Answer
	names     map[string][]string // those that are wanted, with their tags
	left      []string            // those that are not, in no order
	anonymous bool                // as in reading
	cluster   string              // which of them answered; empty if that was not asked, or cannot be known
	nodes     judge.Made          // of some of the services, read because others are missing
	turn      int                 // which certain read of the names it is, if it is one
}

// compare says how a listing differs from the last one that was believed; known is false if there is none, and outage says
// that Consul could not be read in between.
func (l listing) compare(before listing, known, outage bool) judge.Compared {
	c := judge.Compared{
		Known: known, Index: before.Index, Before: len(before.names), Now: len(l.names), Outage: outage, OneByOne: true,
	}
	for name := range before.names {
		if _, there := l.names[name]; !there {
			c.Missing++
		}
	}
	c.Same = c.Missing == 0 && c.Before == c.Now
	return c
}

// meaningOfNames decides what a listing means. wiped is said of a Consul that lost its data: then what is missing means
// nothing until its agents have told it everything again.
func meaningOfNames(c judge.Compared, l listing) (m meaning, wiped bool) {
	switch m = meaning(judge.Judge(c, l.Answer)); m {
	case doubtful, foreign, denied:
		return m, false
	case partial:
		c.Missing = 0 // it may be hidden
	}
	if wiped = judge.Reset(c, l.Answer); wiped && m == unchanged {
		m = changed
	}
	return m, wiped
}
