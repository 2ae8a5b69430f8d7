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

// This file decides the meaning of the answers of Consul, without I/O and time.

// reading is an answer about one service.
type reading struct {
	judge.Answer
	instances instances
	lost      int // endpoints that an earlier run published, and that no instance in any scope has
}

// meaning is the meaning of an answer for the current state: a verdict, or more.
type meaning int

const (
	unchanged = meaning(judge.Same)
	changed   = meaning(judge.Believe)
	doubtful  = meaning(judge.Doubt)
	partial   = meaning(judge.Partial)
	denied    = meaning(judge.Denied)
	foreign   = meaning(judge.Foreign)
	// emptied: the service certainly has no instances.
	emptied = foreign + 1
	// absent: it has no instances, as before or as far as this Consul can tell; the names show when that changes.
	absent = foreign + 2
	// unvouched: instances are certainly missing, and Consul may have lost its data. See service.needsConfirmation.
	unvouched = foreign + 3
)

// meaningOf returns the meaning of a reading for a service with these instances; read is false before the first one.
// Indexes are not compared: those of blocking and other queries count different things.
func meaningOf(before instances, read bool, answer reading) meaning {
	meaning := meaning(judge.Judge(judge.Compared{
		HasBaseline: read, Before: len(before.list) + answer.lost, Now: len(answer.instances.list),
		Missing: len(answer.instances.missing(before)) + answer.lost,
		Same:    before.sum == answer.instances.sum && answer.lost == 0,
	}, answer.Answer))
	if len(answer.instances.list) == 0 && (meaning == unchanged || meaning == changed) {
		return emptied
	}
	return meaning
}

// instances are those of one service, in an order of their own. They are never modified.
type instances struct {
	list []*api.ServiceEntry
	sum  uint64 // digest of the list
}

var seed = maphash.MakeSeed()

// newInstances takes over the entries.
func newInstances(entries []*api.ServiceEntry) instances {
	slices.SortStableFunc(entries, func(a, b *api.ServiceEntry) int {
		return strings.Compare(instanceID(a), instanceID(b))
	})
	return instances{list: entries, sum: digest(entries)}
}

// digest is a hash without the indexes and outputs of checks, which change all the time and have no effect. It has
// whether a TTL check has any output: without one, an agent that restarted waits for the service to report.
func digest(entries []*api.ServiceEntry) uint64 {
	if len(entries) == 0 {
		return 0
	}
	var hash maphash.Hash
	hash.SetSeed(seed)
	encoder := json.NewEncoder(&hash)
	for _, entry := range entries {
		node, service := *entry.Node, *entry.Service
		node.CreateIndex, node.ModifyIndex = 0, 0
		service.CreateIndex, service.ModifyIndex, service.ContentHash = 0, 0, ""
		_ = encoder.Encode(node) // plain data into a hash: neither can fail
		_ = encoder.Encode(service)
		for _, c := range entry.Checks {
			if c != nil {
				_ = encoder.Encode([]any{c.Node, c.CheckID, c.ServiceID, c.Status, c.Type == "ttl" && c.Output == ""})
			}
		}
	}
	return hash.Sum64()
}

// instanceID is the node and the ID that is unique on it.
func instanceID(entry *api.ServiceEntry) string { return entry.Node.Node + "\x00" + entry.Service.ID }

// nodes returns the CreateIndex of the nodes of the instances.
func (i instances) nodes() judge.CreateIndexes {
	nodes := make(judge.CreateIndexes, len(i.list))
	for _, entry := range i.list {
		nodes[entry.Node.Node] = entry.Node.CreateIndex
	}
	return nodes
}

// missing returns the earlier instances that i lacks. An instance that was registered again with another ID and the
// same address is not missing.
func (i instances) missing(before instances) []*api.ServiceEntry {
	if len(before.list) == 0 || i.sum == before.sum {
		return nil
	}
	type key struct {
		id, address string
		port        int
	}
	keys := make(map[key]bool, 2*len(i.list))
	keysOf := func(entry *api.ServiceEntry) (id, address key) {
		return key{id: instanceID(entry)},
			key{address: cmp.Or(entry.Service.Address, entry.Node.Address), port: entry.Service.Port}
	}
	for _, entry := range i.list {
		id, address := keysOf(entry)
		keys[id], keys[address] = true, true
	}
	var missing []*api.ServiceEntry
	for _, entry := range before.list {
		if id, address := keysOf(entry); !keys[id] && !keys[address] {
			missing = append(missing, entry)
		}
	}
	return missing
}

// plus returns i and more entries.
func (i instances) plus(entries []*api.ServiceEntry) instances {
	if len(entries) == 0 {
		return i
	}
	return newInstances(slices.Concat(i.list, entries))
}

// listing is an answer about the names of services.
type listing struct {
	judge.Answer
	names         map[string][]string // the selected ones, with their tags
	unselected    []string            // in order
	nodes         judge.CreateIndexes // of witnesses, which are read when services are missing
	confirmedRead int                 // number of a confirmed read
}

// compare compares a listing with the last one; read is false without one, and outage says that Consul could not be
// read in between.
func (l listing) compare(before listing, read, outage bool) judge.Compared {
	compared := judge.Compared{
		HasBaseline: read, Index: before.Index, Before: len(before.names), Now: len(l.names),
		Outage: outage, OneByOne: true,
	}
	for name := range before.names {
		if _, listed := l.names[name]; !listed {
			compared.Missing++
		}
	}
	compared.Same = compared.Missing == 0 && compared.Before == compared.Now
	return compared
}

// meaningOfNames returns the meaning of a listing. If Consul lost its data (wiped), missing services prove no loss
// until its agents registered them again.
func meaningOfNames(compared judge.Compared, listing listing) (result meaning, wiped bool) {
	switch result = meaning(judge.Judge(compared, listing.Answer)); result {
	case doubtful, foreign, denied:
		return result, false
	case partial:
		compared.Missing = 0 // they may be hidden
	}
	if wiped = judge.Reset(compared, listing.Answer); wiped && result == unchanged {
		result = changed
	}
	return result, wiped
}
