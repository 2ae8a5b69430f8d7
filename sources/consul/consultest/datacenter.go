package consultest

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"
)

// Datacenter is the state of a Consul: its catalog and keys, with their indexes, and its faults. Its methods are safe
// for concurrent use, except for those that say so. Its fields are set before it is used, or by Change or Edit.
type Datacenter struct {
	Index      uint64            // of the last write
	Indexes    map[string]uint64 // of services, also of removed ones
	Services   map[string][]*api.ServiceEntry
	Tombstones map[string]uint64 // indexes of the deletions of keys
	Cluster    string            // its identity; empty if it does not tell

	Fails       error // of all requests
	Hangs       bool  // it accepts requests, and answers none
	Leaderless  bool
	LastContact time.Duration                  // of servers other than the leader
	Refusals    map[string]error               // of reads of services
	Lags        map[string][]*api.ServiceEntry // stale answers about services, of a server that lags
	Unlisted    string                         // the service that is not among the names
	Replayed    uint64                         // the index up to which its leader has replayed its log; 0 for the end

	Hides      bool            // from a token without rights; watches do not tell
	Nodes      map[string]bool // that the token may see; nil for all
	Shows      map[string]bool // services that requests without a token see; nil if they have one
	HiddenKeys string          // prefix of keys that requests do not see, as they have no token; empty for none

	mu           sync.Mutex
	catalogIndex uint64 // of all services
	keys         map[string]*api.KVPair
	changed      chan struct{} // closed by the next change
	losses       int           // of data, which end the queries that wait
	waiting      int           // queries that wait for the next change
}

// firstIndex is the index before anything is written.
const firstIndex = 10

// NewDatacenter returns one without services and keys.
func NewDatacenter() *Datacenter {
	d := &Datacenter{Index: firstIndex, changed: make(chan struct{})}
	d.Lose(firstIndex)
	return d
}

// Edit changes fields without a write.
func (d *Datacenter) Edit(edit func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	edit()
	close(d.changed)
	d.changed, d.waiting = make(chan struct{}), 0
}

// Change makes a change of the catalog, at a new index.
func (d *Datacenter) Change(change func()) {
	d.Edit(func() {
		d.Index++
		d.catalogIndex = d.Index
		change()
	})
}

// SetService makes entries all instances of a service, within Change. Without any, it is listed nevertheless.
func (d *Datacenter) SetService(name string, entries []*api.ServiceEntry) {
	d.Services[name], d.Indexes[name] = entries, d.Index
}

// List makes Instances all that there are of a service, within Change.
func (d *Datacenter) List(name string, texts ...string) { d.SetService(name, Instances(texts...)) }

// RemoveService removes a service, within Change.
func (d *Datacenter) RemoveService(name string) {
	delete(d.Services, name)
	d.Indexes[name] = d.Index
}

// Lose drops all data, within Change or Edit, as a Consul that starts without them, except for services and keys that
// were written again. It goes on at index.
func (d *Datacenter) Lose(index uint64, except ...string) {
	d.losses++
	d.Index = index
	services, keys := d.Services, d.keys
	d.Services, d.Indexes = map[string][]*api.ServiceEntry{}, map[string]uint64{}
	d.keys, d.Tombstones = map[string]*api.KVPair{}, map[string]uint64{}
	for _, name := range slices.Sorted(slices.Values(except)) {
		if entries, exists := services[name]; exists {
			d.Index++
			d.SetService(name, entries)
		}
		if pair := keys[name]; pair != nil {
			d.write(api.KVPair{Key: name, Value: pair.Value, Flags: pair.Flags})
		}
	}
	d.catalogIndex = d.Index
}

// contents returns the names of all services and keys.
func (d *Datacenter) contents() []string {
	return slices.AppendSeq(slices.Collect(maps.Keys(d.Services)), maps.Keys(d.keys))
}

// Put makes entries all instances of a service.
func (d *Datacenter) Put(name string, entries ...*api.ServiceEntry) {
	d.Change(func() { d.SetService(name, entries) })
}

// Register makes instances with IDs all that there are of a service: 10.0.0.ID:80.
func (d *Datacenter) Register(name string, ids ...string) {
	var entries []*api.ServiceEntry
	for _, id := range ids {
		entries = append(entries, Instance(name, id, "10.0.0."+id, 80))
	}
	d.Put(name, entries...)
}

// Add adds an instance to a service.
func (d *Datacenter) Add(name string, entry *api.ServiceEntry) {
	d.Change(func() { d.SetService(name, append(slices.Clone(d.Services[name]), entry)) })
}

// Remove removes a service.
func (d *Datacenter) Remove(name string) { d.Change(func() { d.RemoveService(name) }) }

// Wipe restarts it without its data, at a lower index, as Lose does.
func (d *Datacenter) Wipe(except ...string) { d.Edit(func() { d.Lose(1, except...) }) }

// Fail makes it answer all requests with an error; nil for none.
func (d *Datacenter) Fail(err error) { d.Edit(func() { d.Fails = err }) }

// Hide makes it answer as to a token without rights.
func (d *Datacenter) Hide() { d.Edit(func() { d.Fails, d.Hides = nil, true }) }

// Restore ends all faults.
func (d *Datacenter) Restore() {
	d.Edit(func() {
		d.Refusals, d.Lags = nil, nil
		d.Fails, d.Hangs, d.Leaderless, d.LastContact, d.Replayed = nil, false, false, 0, 0
		d.Hides, d.Nodes, d.Shows, d.HiddenKeys = false, nil, nil, ""
	})
}

// Waiting returns how many queries wait for the next change.
func (d *Datacenter) Waiting() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.waiting
}

// Query has the parameters of a read.
type Query struct {
	Index             uint64        // wait until there is a newer one; 0 does not wait
	Wait              time.Duration // for at most that
	Stale, Consistent bool
	Stranger          bool // it has no token, and sees no service
	Recurse, Names    bool // of keys
}

// Answer has the headers of an answer.
type Answer struct {
	Index       uint64
	Filtered    bool
	Leaderless  bool
	LastContact time.Duration
	Anonymous   bool // no token was sent
}

// Read answers a query of a path of the HTTP API once it has something newer than the index of the query: names as
// map[string][]string, and lists of api's types.
func (d *Datacenter) Read(ctx context.Context, path string, query Query) (content any, answer Answer, err error) {
	deadline := time.NewTimer(cmp.Or(query.Wait, 5*time.Minute))
	defer deadline.Stop()
	d.mu.Lock()
	defer d.mu.Unlock()
	plain := query.Index == 0
	for losses := d.losses; ; {
		switch {
		case losses != d.losses:
			return nil, answer, cmp.Or(d.Fails, errRestarted)
		case d.Hangs:
		case d.Fails != nil:
			return nil, answer, d.Fails
		default:
			content, answer, err = d.answer(path, query)
			answer.Leaderless = d.Leaderless || !plain // answers to watches name no leader
			answer.Filtered = answer.Filtered && plain
			// A query for an index of the future waits, as with Consul 1.22.
			if err != nil || query.Index == 0 || answer.Index > query.Index || d.Hides || d.HiddenKeys != "" || d.Replayed > 0 {
				return content, answer, err
			}
		}
		changed := d.changed
		d.waiting++
		d.mu.Unlock()
		select {
		case <-changed:
			d.mu.Lock()
			continue
		case <-ctx.Done():
			err = ctx.Err()
		case <-deadline.C:
			query.Index = 0
		}
		d.mu.Lock()
		if changed == d.changed {
			d.waiting--
		}
		if err != nil {
			return nil, answer, err
		}
	}
}

func (d *Datacenter) answer(path string, query Query) (content any, answer Answer, err error) {
	answer = Answer{Index: d.catalogIndex, Filtered: d.Hides || d.Nodes != nil, Anonymous: d.Shows != nil}
	if query.Stale {
		answer.LastContact = d.LastContact
	}
	if key, isKey := strings.CutPrefix(path, "/v1/kv/"); isKey {
		return d.answerKeys(key, query, answer)
	}
	if name, isService := strings.CutPrefix(path, "/v1/health/service/"); isService {
		if entries, lags := d.Lags[name]; lags && query.Stale && query.Index == 0 {
			answer.Index = 1
			return entries, answer, nil
		}
		if index, exists := d.Indexes[name]; exists { // else that of all services
			answer.Index = index
		}
		return d.visible(name, query), answer, d.Refusals[name]
	}
	switch path {
	case "/v1/connect/ca/roots":
		return map[string]string{"TrustDomain": d.Cluster}, answer, nil
	case "/v1/catalog/services":
		names := map[string][]string{}
		for name, entries := range d.Services {
			shown := d.visible(name, query)
			if name == d.Unlisted || !d.shows(name, query) || len(shown) == 0 && len(entries) > 0 {
				continue
			}
			names[name] = []string{}
			for _, entry := range shown {
				names[name] = append(names[name], entry.Service.Tags...)
			}
		}
		return names, answer, nil
	}
	status, isState := strings.CutPrefix(path, "/v1/health/state/")
	if !isState && path != "/v1/catalog/nodes" {
		return nil, answer, api.StatusError{Code: 405, Body: "no handler for " + path}
	}
	checks := api.HealthChecks{}
	nodes := map[string]*api.Node{}
	for name, entries := range d.Services {
		for _, entry := range entries {
			nodes[entry.Node.Node] = entry.Node
			for _, check := range entry.Checks {
				if check.Status == status {
					failing := *check
					failing.Node, failing.ServiceName = entry.Node.Node, name
					failing.CheckID = entry.Service.ID + check.CheckID
					checks = append(checks, &failing)
				}
			}
		}
	}
	if !isState {
		return slices.Collect(maps.Values(nodes)), answer, nil
	}
	return checks, answer, nil
}

// shows reports whether requests may see a service.
func (d *Datacenter) shows(name string, query Query) bool {
	return !d.Hides && !query.Stranger && (d.Shows == nil || d.Shows[name])
}

// visible returns the instances that requests may see.
func (d *Datacenter) visible(name string, query Query) []*api.ServiceEntry {
	if !d.shows(name, query) {
		return []*api.ServiceEntry{}
	}
	return slices.DeleteFunc(append([]*api.ServiceEntry{}, d.Services[name]...), func(entry *api.ServiceEntry) bool {
		return d.Nodes != nil && !d.Nodes[entry.Node.Node]
	})
}

// Right is the right to read something; an empty segment stands for any.
type Right struct{ Resource, Access, Segment string }

// Allows reports whether requests have a right, within Edit.
func (d *Datacenter) Allows(right Right) bool {
	switch {
	case d.Hides:
		return false
	case right.Resource == "key":
		return d.HiddenKeys == "" || !strings.HasPrefix(right.Segment, d.HiddenKeys)
	case d.Shows != nil && (right.Resource == "service" || right.Segment == ""):
		return d.Shows[right.Segment]
	case d.Nodes != nil && right.Resource == "node":
		return d.Nodes[right.Segment]
	}
	return true
}
