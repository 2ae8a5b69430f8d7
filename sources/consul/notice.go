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

// Over plain HTTP not every service has a place for a query that waits. Those that have none are not read for nothing: a few
// queries that do wait witness that nothing has changed. That of the names, which run anyway, sees whatever registers, goes, or has
// another port or meta; those of all failing checks see each check that fails or recovers, and name its service; that of the nodes
// sees their addresses and meta. Together they cost an idle Consul nothing.
//
// All checks in one query (health/state/any) would see a little more, and answer with megabytes whenever one of them flips, since it
// comes with what each check says.

// mark is what a witness names: a service, or a node and so all services on it.
type mark struct{ service, node string }

// markOf names a service or a node. To Consul those that differ by case only are one.
func markOf(service, node string) mark { return mark{strings.ToLower(service), strings.ToLower(node)} }

// marks are what a witness answered: a digest of all that it says of each mark.
type marks map[mark]uint64

// witnessed are the questions of the witnesses besides the names: the states of checks that fail, and nodes.
var witnessed = []string{api.HealthCritical, api.HealthWarning, aboutNodes}

const aboutNodes = "nodes"

// note is what is known of the witnesses of a domain.
type note struct {
	waiting map[string]bool // by question: it was answered, and waits for news
	// moved counts what may be about any service; stir is closed when it grows.
	moved int
	stir  chan struct{}
}

func newNote() note { return note{waiting: make(map[string]bool), moved: 1, stir: make(chan struct{})} }

// reliable reports whether whatever changes is noticed.
func (n *note) reliable() bool { return len(n.waiting) == len(witnessed) }

// move says that any service may have changed.
func (n *note) move() {
	n.moved++
	close(n.stir)
	n.stir = make(chan struct{})
}

// enoughFor is how many places there have to be for each domain before some of them are given to witnesses.
const enoughFor = 8

// notice asks one of the questions about p, and waits for news, from when on there is a service without a place.
func (r *run) notice(ctx context.Context, p *part, question string) {
	for !r.gate.scarce() {
		if !sleep(ctx, time.Second) {
			return
		}
	}
	pace, retry := pacer{last: paceNotices}, newBackOff(firstRetry, lastRetry)
	var index uint64
	var before marks
	for r.gate.calm(ctx) {
		q := query{index: index, level: r.usualLevel(p)}
		r.metrics.notices.Add(1)
		now, at, err := r.catalog.notices(ctx, p.domain, question, q)
		if err != nil {
			r.noticed(p, question, before, nil)
			index, before = 0, nil
			sleep(ctx, retry.NextBackOff())
			continue
		}
		retry.Reset()
		r.noticed(p, question, before, now)
		before, index = now, next(q, index, at)
		sleep(ctx, pace.next(time.Now()))
	}
}

// noticed has those services without a place read that an answer is about. The first answer tells of nothing that changed, and so
// everything may have; so does a failure, without an answer, and then services are read in turn.
func (r *run) noticed(p *part, question string, before, now marks) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if before == nil || now == nil {
		delete(p.note.waiting, question)
		if now != nil {
			p.note.waiting[question] = true
		}
		p.note.move()
		return
	}
	about := differ(before, now)
	if len(about) == 0 {
		return
	}
	onNode := func(e *api.ServiceEntry) bool { return about[markOf("", e.Node.Node)] }
	for name, s := range p.services {
		if !s.placed && (about[markOf(name, "")] || slices.ContainsFunc(s.instances.list, onNode)) {
			s.again.raise()
		}
	}
}

// differ returns the marks of which two answers do not say the same.
func differ(a, b marks) map[mark]bool {
	all := make(map[mark]bool)
	for _, m := range slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b)) {
		was, there := a[m]
		is, here := b[m]
		if there != here || was != is {
			all[m] = true
		}
	}
	return all
}

// idle waits until a service without a place is to be read again. It is false if it was told to look, or ctx ended.
func (w *watcher) idle(ctx context.Context) bool {
	ctx, end := w.service.again.begin(ctx)
	defer end()
	for {
		w.mu.Lock()
		n := &w.service.part.note
		still, stir := n.reliable() && w.seen == n.moved, n.stir
		w.mu.Unlock()
		if !still {
			return ctx.Err() == nil
		}
		select {
		case <-stir:
		case <-ctx.Done():
			return false
		}
	}
}

// covered reports whether what changes of a service without a place is noticed.
func (w *watcher) covered() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.service.part.note.reliable()
}

// notices implements catalog.
func (c *client) notices(ctx context.Context, d domain, question string, q query) (marks, uint64, error) {
	o, cancel := c.options(ctx, d, q, "")
	defer cancel()
	all := make(marks)
	var meta *api.QueryMeta
	var err error
	if question == aboutNodes {
		var nodes []*api.Node
		nodes, meta, err = c.Catalog().Nodes(o)
		if err = cmp.Or(err, dial.Whole(nodes)); err == nil {
			for _, n := range nodes {
				all[markOf("", n.Node)] += digest([]*api.ServiceEntry{{Node: n, Service: &api.AgentService{}}})
			}
		}
	} else {
		var checks api.HealthChecks
		checks, meta, err = c.Health().State(question, o)
		if err = cmp.Or(err, dial.Whole(checks)); err == nil {
			for _, check := range checks {
				m := markOf(check.ServiceName, "")
				if m.service == "" {
					m = markOf("", check.Node)
				}
				all[m] += maphash.String(seed, check.Node+"\x00"+check.CheckID) | 1 // a sum, since their order means nothing
			}
		}
	}
	if err != nil {
		return nil, 0, dial.Explain(o.Context(), err)
	}
	return all, meta.LastIndex, nil
}
