package envoy

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"tributary/resource"
	"tributary/server/xds"
)

// hearing is that of one complaint.
type hearing struct {
	*Catalog
	scope    *scope
	about    *xds.AnswerInfo
	rejected []xds.Resource // that nobody else accepted
	named    bool           // by the client
}

// How complaints end, as they label the metric.
const (
	endedQuarantined  = "quarantined"
	endedContradicted = "contradicted" // somebody else accepts the same
	endedMachine      = "machine"
	endedUnheard      = "unheard"     // by a client that is not believed
	endedUnexplained  = "unexplained" // no object that changed lately is the cause
	endedLimit        = "limit"
)

var (
	errNoAnswer   = errors.New("the client does not answer")
	errNotContent = errors.New("the client rejects what was there before as well")
	errNoEffect   = errors.New("nothing that changed lately makes a difference")
)

// hear hears complaints until ctx ends.
func (c *Catalog) hear(ctx context.Context) {
	for {
		a := c.judge.next()
		if a == nil {
			select {
			case <-ctx.Done():
				return
			case <-c.judge.bell:
			}
			continue
		}
		select { // for others to answer
		case <-ctx.Done():
			return
		case <-time.After(cmp.Or(c.opts.Hearing, defaultHearing)):
		}
		if a = c.judge.stands(a); a == nil {
			continue
		}
		h := hearing{Catalog: c, about: a}
		end, err := h.hold(ctx)
		if ctx.Err() != nil {
			return
		}
		if end == "" {
			continue
		}
		c.metrics.complaints.WithLabelValues(end).Inc()
		if end != endedQuarantined {
			c.log.Warn("no object is set aside for what a client rejects", "why", end, "node_id", a.Node, "peer", a.Peer, "type_url", a.TypeURL, "reject", a.Error, "err", err)
		}
	}
}

// hold holds the hearing and returns how it ended; nothing for a complaint that is none of the catalog's.
func (h *hearing) hold(ctx context.Context) (end string, err error) {
	now := time.Now()
	if h.scope = h.scopeOf(h.about.Collection); h.scope == nil || h.scope.profile.role == proxyless {
		return "", nil
	}
	switch {
	case ofTheMachine(h.about.Error):
		return endedMachine, nil
	case !h.judge.believes(h.about.Host, now):
		return endedUnheard, nil
	}
	if h.rejected = h.uncontradicted(); len(h.rejected) == 0 {
		return endedContradicted, nil
	}
	h.rejected, h.named = named(h.rejected, h.about.Error)
	suspects := h.suspects()
	if len(suspects) == 0 {
		return endedUnexplained, nil
	}
	guilty, err := h.find(ctx, suspects)
	if err != nil {
		if len(guilty) == 0 && !errors.Is(err, errNoEffect) {
			h.judge.disbelieve(h.about.Host, now)
		}
		h.putBack(suspects) // but for those in quarantine
	}
	switch {
	case len(guilty) > 0:
		return endedQuarantined, err
	case err != nil:
		return endedUnexplained, err
	}
	return endedLimit, nil
}

// scopeOf returns the scope whose collection it is, or nil.
func (c *Catalog) scopeOf(coll *xds.Collection) *scope {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for s := range c.following {
		if slices.Contains(s.collections(), coll) {
			return s
		}
	}
	return nil
}

// uncontradicted returns what was rejected and no other Envoy accepted as it is.
func (h *hearing) uncontradicted() []xds.Resource {
	h.judge.mu.Lock()
	witnesses := h.judge.witnesses
	h.judge.mu.Unlock()
	if witnesses == nil {
		return h.about.Changed
	}
	envoys := make(map[*xds.Collection]bool) // of the type
	h.mu.RLock()
	for s := range h.following {
		if s.profile.role != proxyless {
			envoys[s.collection(h.about.TypeURL)] = true
		}
	}
	h.mu.RUnlock()
	other := func(stream uint64, c *xds.Collection) bool { return stream != h.about.StreamID && envoys[c] }
	return slices.DeleteFunc(slices.Clone(h.about.Changed), func(r xds.Resource) bool { return witnesses.Accepted(r, other) })
}

// suspects returns the objects that changed lately and have a part in what was rejected, the one that changed last first.
func (h *hearing) suspects() (some []*trial) {
	hosts := h.scope.hostsOf(h.about.TypeURL, h.names())
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.quarantine.suspects() {
		touched := make(map[string]struct{})
		for _, r := range append(slices.Clone(t.earlier), t.now) { // the last one is what there is
			_ = h.mesh.set(t.key, r, touched) // that it cannot be decoded was said when it came
		}
		h.mesh.touchOthers(touched)
		for host := range touched {
			if hosts[host] {
				some = append(some, t)
				break
			}
		}
		if len(some) == maxSuspects {
			break
		}
	}
	return some
}

func (h *hearing) names() map[string]bool {
	names := make(map[string]bool, len(h.rejected))
	for _, r := range h.rejected {
		names[r.Name] = true
	}
	return names
}

// find sets aside the suspects that the client rejects, and returns them. An error is why it cannot be told.
func (h *hearing) find(ctx context.Context, suspects []*trial) (guilty []*trial, err error) {
	answers, done := h.judge.ask(h.about)
	defer done()
	err = errNoEffect
	for depth := range maxEarlier {
		if depth > 0 && !slices.ContainsFunc(suspects, func(t *trial) bool { return len(t.earlier) > depth }) {
			break
		}
		content, failed := h.try(ctx, suspects, answers, func() { h.quarantine.set(suspects, depth) })
		switch {
		case failed != nil:
			return nil, failed
		case content == yes:
			return h.isolate(ctx, suspects, depth, answers)
		case content == no:
			err = errNotContent
		}
	}
	return nil, err
}

// isolate finds those whom the client rejects among suspects of whom there is at least one. All are set aside; the innocent are put back.
func (h *hearing) isolate(ctx context.Context, suspects []*trial, depth int, answers <-chan *xds.AnswerInfo) (guilty []*trial, err error) {
	if len(suspects) == 1 {
		if h.convict(suspects[0]) {
			guilty = suspects
		}
		return guilty, nil
	}
	first, rest := suspects[:len(suspects)/2], suspects[len(suspects)/2:]
	content, err := h.try(ctx, first, answers, func() { h.quarantine.acquit(first) })
	if err != nil {
		return nil, err
	}
	if content != no {
		return h.isolate(ctx, rest, depth, answers)
	}
	if content, err = h.try(ctx, first, answers, func() { h.quarantine.set(first, depth) }); err != nil || content == no {
		return nil, cmp.Or(err, errNotContent)
	}
	if guilty, err = h.isolate(ctx, first, depth, answers); err != nil {
		return guilty, err
	}
	content, err = h.try(ctx, rest, answers, func() { h.quarantine.acquit(rest) })
	if err != nil || content != no {
		return guilty, err
	}
	if content, err = h.try(ctx, rest, answers, func() { h.quarantine.set(rest, depth) }); err != nil || content == no {
		return guilty, cmp.Or(err, errNotContent)
	}
	more, err := h.isolate(ctx, rest, depth, answers)
	return append(guilty, more...), err
}

// opinion is what a client thinks of a change.
type opinion int

const (
	unseen opinion = iota // it does not see it
	yes
	no
)

// try makes a change of what is set aside of some objects, and returns what the client thinks of what it is told then.
func (h *hearing) try(ctx context.Context, objects []*trial, answers <-chan *xds.AnswerInfo, with func()) (opinion, error) {
	versions := func() map[string]string {
		all := make(map[string]string)
		for _, r := range h.rejected {
			if e := h.about.Collection.Get(r.Name); e != nil {
				all[r.Name] = e.Version
			}
		}
		return all
	}
	before := versions()
	h.redo(objects, with)
	revision := h.about.Collection.Revision()
	if maps.Equal(before, versions()) {
		return unseen, nil
	}
	patience := time.NewTimer(answerPatience)
	defer patience.Stop()
	for {
		select {
		case a := <-answers:
			switch {
			case a.Revision < revision:
			case a.Error == "" || h.named && !h.mentioned(a.Error):
				return yes, nil
			default:
				return no, nil
			}
		case <-patience.C:
			return unseen, errNoAnswer
		case <-ctx.Done():
			return unseen, ctx.Err()
		}
	}
}

// mentioned says whether a rejection is of what the complaint is about.
func (h *hearing) mentioned(why string) bool {
	return slices.ContainsFunc(h.rejected, func(r xds.Resource) bool { return mentions(why, r.Name) })
}

// redo translates objects anew of which with changes whether they are set aside.
func (c *Catalog) redo(objects []*trial, with func()) {
	c.mu.Lock()
	with()
	keys := make([]resource.Key, len(objects))
	for i, t := range objects {
		keys[i] = t.key
	}
	following := c.set(keys, c.last)
	c.mu.Unlock()
	c.catchUpAll(following)
}

func (h *hearing) putBack(objects []*trial) {
	h.redo(objects, func() { h.quarantine.acquit(objects) })
}

// convict leaves an object in quarantine, unless there are too many.
func (h *hearing) convict(t *trial) bool {
	why := Quarantined{Since: time.Now(), TypeURL: h.about.TypeURL, Error: h.about.Error, Node: h.about.Node, Peer: h.about.Peer, host: h.about.Host}
	why.Resources = slices.Sorted(maps.Keys(h.names()))
	h.mu.Lock()
	all := h.quarantine.list()
	ofHost := 0
	for _, q := range all {
		if q.host == h.about.Host {
			ofHost++
		}
	}
	may := len(all) < maxQuarantined && ofHost < maxOfComplainer
	convicted := may && h.quarantine.convict(t, why)
	h.mu.Unlock()
	if !may {
		h.putBack([]*trial{t})
	}
	if convicted {
		h.log.Error("an object is in quarantine for Envoys, which are served what it was before, until it changes", "key", t.key.String(), "origin", t.now.Origin().String(),
			"node_id", why.Node, "peer", why.Peer, "type_url", why.TypeURL, "reject", why.Error)
	}
	return convicted
}

// Quarantined returns what is in quarantine since Envoys reject it, in order of key.
func (c *Catalog) Quarantined() []Quarantined {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.quarantine.list()
}
