package consul

import (
	"cmp"
	"context"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"tributary/sources/consul/dial"
)

// Over plain HTTP, services without a watch slot are not polled for no reason: a few blocking queries show that there
// is no change. That of the names, which runs anyway, changes with each registration, port and meta; those of the
// failing checks name the service of each check that flips; that of the nodes has their addresses and meta. An idle
// Consul has no cost.
//
// A single query of all checks (health/state/any) would show a little more, and return megabytes at each flip.

// changeKey is the subject of a change: a service, or a node and so all services on it.
type changeKey struct{ service, node string }

// newChangeKey ignores case, as Consul does.
func newChangeKey(service, node string) changeKey {
	return changeKey{strings.ToLower(service), strings.ToLower(node)}
}

// checkDigests has a digest of the answer for each key.
type checkDigests map[changeKey]uint64

// changeQueries are the queries in addition to that of the names: the states of failing checks, and the nodes.
var changeQueries = []string{api.HealthCritical, api.HealthWarning, nodesQuery}

const nodesQuery = "nodes"

// changeNotes are the results of the change queries of a scope.
type changeNotes struct {
	running map[string]bool // by query: it was answered, and blocks
	count   int             // of changes that may concern any service
	changed chan struct{}   // closed when count grows
}

func newChangeNotes() changeNotes {
	return changeNotes{running: make(map[string]bool), count: 1, changed: make(chan struct{})}
}

// allRunning reports whether each change is noticed.
func (n *changeNotes) allRunning() bool { return len(n.running) == len(changeQueries) }

// signal has all services without a slot polled.
func (n *changeNotes) signal() {
	n.count++
	close(n.changed)
	n.changed = make(chan struct{})
}

// minSlotsForQueries is the number of slots for each scope above which some of them are for change queries.
const minSlotsForQueries = 8

// watchChanges runs one of the change queries, from the first service without a slot on.
func (r *run) watchChanges(ctx context.Context, p *catalogScope, name string) {
	for r.gate.queued.Load() == 0 {
		if !sleep(ctx, time.Second) {
			return
		}
	}
	pace, retry := pacer{last: paceChanges}, newBackOff(firstRetry, lastRetry)
	var index uint64
	var before checkDigests
	for r.gate.wait(ctx) {
		q := query{index: index, level: r.usualLevel(p)}
		r.metrics.changeReads.Add(1)
		digests, answerIndex, err := r.catalog.checkDigests(ctx, p.scope, name, q)
		if err != nil {
			digests = nil
		}
		r.mu.Lock()
		p.applyDigests(name, before, digests)
		r.mu.Unlock()
		before = digests
		if err != nil {
			index = 0
			sleep(ctx, retry.NextBackOff())
			continue
		}
		retry.Reset()
		index = dial.NextIndex(q.index, answerIndex)
		sleep(ctx, pace.next(time.Now()))
	}
}

// applyDigests has the services without a slot read that changed. The first answer and a failure, which has no digests,
// may hide any change. After a failure, services are polled in turn.
func (p *catalogScope) applyDigests(name string, before, digests checkDigests) {
	if before == nil || digests == nil {
		delete(p.changes.running, name)
		if digests != nil {
			p.changes.running[name] = true
		}
		p.changes.signal()
		return
	}
	changes := differences(before, digests)
	if len(changes) == 0 {
		return
	}
	onNode := func(e *api.ServiceEntry) bool { return changes[newChangeKey("", e.Node.Node)] }
	for name, s := range p.services {
		if !s.watched && (changes[newChangeKey(name, "")] || slices.ContainsFunc(s.instances.list, onNode)) {
			s.reread.raise()
		}
	}
}

// differences returns the keys with different digests. An absent one is 0.
func differences(before, digests checkDigests) map[changeKey]bool {
	keys := make(map[changeKey]bool)
	for _, list := range []checkDigests{before, digests} {
		for key := range maps.Keys(list) {
			if before[key] != digests[key] {
				keys[key] = true
			}
		}
	}
	return keys
}

// waitForChange waits until a service without a slot may have changed. It fails when it is interrupted.
func (w *watcher) waitForChange(ctx context.Context) bool {
	ctx, end := w.service.reread.begin(ctx)
	defer end()
	for {
		w.mu.Lock()
		notes := &w.service.scope.changes
		unchanged, changed := notes.allRunning() && w.changeSeen == notes.count, notes.changed
		w.mu.Unlock()
		if !unchanged {
			return ctx.Err() == nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

func (w *watcher) allQueriesRunning() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.service.scope.changes.allRunning()
}

// checkDigests implements catalog.
func (c *client) checkDigests(ctx context.Context, d scope, name string, q query) (checkDigests, uint64, error) {
	o, cancel := c.options(ctx, d, q, "")
	defer cancel()
	digests := make(checkDigests)
	var meta *api.QueryMeta
	var err error
	if name == nodesQuery {
		var nodes []*api.Node
		nodes, meta, err = c.Catalog().Nodes(o)
		if err = cmp.Or(err, dial.Whole(nodes)); err == nil {
			for _, node := range nodes {
				entry := &api.ServiceEntry{Node: node, Service: &api.AgentService{}}
				digests[newChangeKey("", node.Node)] += digest([]*api.ServiceEntry{entry})
			}
		}
	} else {
		var checks api.HealthChecks
		checks, meta, err = c.Health().State(name, o)
		if err = cmp.Or(err, dial.Whole(checks)); err == nil {
			for _, check := range checks {
				key := newChangeKey(check.ServiceName, "")
				if key.service == "" {
					key = newChangeKey("", check.Node)
				}
				// A sum, because the order has no meaning.
				digests[key] += maphash.String(seed, check.Node+"\x00"+check.CheckID) | 1
			}
		}
	}
	if err != nil {
		return nil, 0, dial.Explain(o.Context(), err)
	}
	return digests, meta.LastIndex, nil
}
