package consul

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"tributary/internal/worker"
	"tributary/sources/consul/dial"
)

// Over plain HTTP, services without a watch slot are polled only after a change. Four blocking queries for each scope
// report changes: the names, which are watched anyway (registrations, ports, meta); the critical and the warning checks
// (services whose checks flip); and the nodes (addresses, meta). So an idle Consul has no cost.
//
// A single query of all checks (health/state/any) would show a little more, and return megabytes at each flip.

// changeItem is an item of the answer to a change query: a failing check of a service, one of a node and so of all
// services on it, or a node. Names are in lower case, because Consul ignores case.
type changeItem struct{ service, node, content string }

type changeItems map[changeItem]bool

func (items changeItems) add(service, node, content string) {
	items[changeItem{strings.ToLower(service), strings.ToLower(node), content}] = true
}

// changeQueries are the queries in addition to that of the names: the states of failing checks, and the nodes.
var changeQueries = []string{api.HealthCritical, api.HealthWarning, nodesQuery}

const nodesQuery = "nodes"

// changeResults are the results of the change queries of a scope.
type changeResults struct {
	answers map[string]changeItems // by query, while it blocks
	count   int                    // of changes that may concern any service
	changed chan struct{}          // closed when count grows
}

func newChangeResults() changeResults {
	return changeResults{answers: make(map[string]changeItems), count: 1, changed: make(chan struct{})}
}

// allRunning reports whether each query has an answer, so that the next change is noticed.
func (n *changeResults) allRunning() bool { return len(n.answers) == len(changeQueries) }

// signal requests a poll of every service without a slot.
func (n *changeResults) signal() {
	n.count++
	close(n.changed)
	n.changed = make(chan struct{})
}

// minSlotsForQueries is the number of slots for each scope with change queries above which some are for these.
const minSlotsForQueries = 8

// answersChangeQueries reports whether Consul answers change queries about the scope. It answers none about peers.
func (s scope) answersChangeQueries() bool { return s.peer == "" }

// watchChanges runs one of the change queries. It starts when the first service gets no slot.
func (r *run) watchChanges(ctx context.Context, scope *catalogScope, name string) {
	select {
	case <-r.gate.full:
	case <-ctx.Done():
	}
	pace, retry := pacer{last: paceChanges}, newBackOff(firstRetry, lastRetry)
	var index uint64
	for r.gate.wait(ctx) {
		query := query{index: index, level: r.usualLevel(scope)}
		r.metrics.changeReads.Add(1)
		queryContext, endQuery := scope.begin(ctx, query)
		items, answerIndex, err := r.catalog.changeItems(queryContext, scope.scope, name, query)
		if err = endQuery(err); err != nil {
			items = nil
		}
		r.mu.Lock()
		scope.applyChanges(name, items)
		r.mu.Unlock()
		if err != nil {
			index = 0
			_ = worker.Wait(ctx, nil, retry.NextBackOff())
			continue
		}
		retry.Reset()
		index = dial.NextIndex(query.index, answerIndex)
		_ = worker.Wait(ctx, nil, pace.next(time.Now()))
	}
}

// applyChanges requests a read of each changed service without a slot. The first answer and a failure, which has no
// items, may hide any change. After a failure, services are polled in turn.
func (s *catalogScope) applyChanges(name string, items changeItems) {
	before := s.changes.answers[name]
	s.changes.answers[name] = items
	if items == nil {
		delete(s.changes.answers, name)
	}
	if before == nil || items == nil {
		s.changes.signal()
		return
	}
	services := make(map[string]bool)
	nodes := make(map[string]bool)
	for _, lists := range [][2]changeItems{{before, items}, {items, before}} {
		for item := range lists[0] {
			switch {
			case lists[1][item]:
			case item.service != "":
				services[item.service] = true
			default:
				nodes[item.node] = true
			}
		}
	}
	onChangedNode := func(entry *api.ServiceEntry) bool { return nodes[strings.ToLower(entry.Node.Node)] }
	for name, service := range s.services {
		changed := services[strings.ToLower(name)] ||
			len(nodes) > 0 && slices.ContainsFunc(service.instances.list, onChangedNode)
		if changed && !service.hasSlot {
			service.reread.Raise()
		}
	}
}

// waitForChange waits until a service without a slot may have changed. It returns false if it is interrupted.
func (w *watcher) waitForChange(ctx context.Context) bool {
	ctx, end := w.service.reread.Begin(ctx)
	defer end()
	for {
		w.run.mu.Lock()
		results := &w.service.scope.changes
		unchanged := results.allRunning() && w.changeSeen == results.count
		changed := results.changed
		w.run.mu.Unlock()
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
	w.run.mu.Lock()
	defer w.run.mu.Unlock()
	return w.service.scope.changes.allRunning()
}

// changeItems implements catalog.
func (c *client) changeItems(
	ctx context.Context, scope scope, name string, query query,
) (items changeItems, index uint64, err error) {
	items = make(changeItems)
	if name == nodesQuery {
		nodes, answer, err := ask(ctx, c, scope, query, "", "read the nodes", c.Catalog().Nodes)
		if err = cmp.Or(err, dial.Whole(nodes)); err != nil {
			return nil, 0, err
		}
		for _, node := range nodes {
			entry := &api.ServiceEntry{Node: node, Service: &api.AgentService{}}
			items.add("", node.Node, fmt.Sprint(digest([]*api.ServiceEntry{entry})))
		}
		return items, answer.Index, nil
	}
	read := func(o *api.QueryOptions) (api.HealthChecks, *api.QueryMeta, error) { return c.Health().State(name, o) }
	checks, answer, err := ask(ctx, c, scope, query, "", "read the checks", read)
	if err = cmp.Or(err, dial.Whole(checks)); err != nil {
		return nil, 0, err
	}
	for _, check := range checks {
		items.add(check.ServiceName, check.Node, check.CheckID)
	}
	return items, answer.Index, nil
}
