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

// instances are the instances of one service, sorted by instanceID. They are never modified.
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

// digest is a hash without the indexes and outputs of checks, which change all the time and have no effect. It includes
// whether a TTL check has output. A TTL check without output belongs to an agent that restarted and waits for the first
// report of the service.
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
		for _, check := range entry.Checks {
			if check != nil {
				awaitsReport := check.Type == "ttl" && check.Output == ""
				_ = encoder.Encode([]any{check.Node, check.CheckID, check.ServiceID, check.Status, awaitsReport})
			}
		}
	}
	return hash.Sum64()
}

// instanceID joins the name of the node and the service ID, which is unique only within a node.
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
		keys[id] = true
		keys[address] = true
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
