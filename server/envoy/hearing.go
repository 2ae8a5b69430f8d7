package envoy

import (
	"context"
	"crypto/sha256"
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"tributary/resource"
	"tributary/server/xds"
)

// hearing is that of one complaint.
type hearing struct {
	*Catalog
	scope    *scope // of the client
	about    xds.Complaint
	past     past // of what was heard before
	seat     *seat
	rejected []xds.Resource // that was not heard before, and nobody else accepted
	named    bool           // by the client
	matters  []xds.Resource // of what is rejected, what is otherwise with some objects set aside
	begun    uint64         // after which change
	limited  bool           // there was no room for one more in quarantine
	booth    *booth         // where it is held
	recalled []*trial       // for it
	upTo     resource.Key   // of these, if there are more
}

// How complaints end, as they label the metric.
const (
	endedQuarantined  = "quarantined"
	endedContradicted = "contradicted" // somebody else accepts the same
	endedMachine      = "machine"
	endedUnheard      = "unheard"     // by a client that is not believed
	endedUnexplained  = "unexplained" // no object that changed lately is the cause
	endedLimit        = "limit"
	endedAgain        = "again" // it is heard anew, since other objects have changed meanwhile

	moot = "moot" // the client is told something else by now
)

var (
	errNoAnswer   = errors.New("the client does not answer")
	errNotContent = errors.New("the client rejects what was there before as well")
	errNoEffect   = errors.New("nothing that changed lately makes a difference")
	errTooMuch    = errors.New("the client rejects too much, and does not say what of it")
	errGone       = errors.New("the client is gone")
	errChanged    = errors.New("other objects have changed meanwhile")
	errNoRoom     = errors.New("there is no place for it in quarantine")
	errWitnessed  = errors.New("others have accepted meanwhile what the client rejects")
)

// hear hears complaints until ctx ends.
func (c *Catalog) hear(ctx context.Context) {
	var hearings sync.WaitGroup
	defer hearings.Wait()
	due := time.NewTimer(time.Hour)
	defer due.Stop()
	for {
		c.callUp(ctx, &hearings)
		due.Reset(c.judge.wait(time.Now()))
		select {
		case <-ctx.Done():
			return
		case <-c.judge.bell:
		case <-due.C:
		}
	}
}

// callUp begins to hear what is due, as far as there are seats.
func (c *Catalog) callUp(ctx context.Context, hearings *sync.WaitGroup) {
	w, now := c.witnesses(), time.Now()
	for _, l := range c.judge.due(now) {
		if w == nil {
			c.judge.found(l, xds.Gone, now)
			continue
		}
		about, o := w.Complaint(l.stream, l.typeURL)
		var s *scope
		if o == xds.Rejects {
			if s = c.scopeOf(about.Collection); s == nil {
				o = xds.Undecided // it is being led elsewhere
			} else if s.profile.role == proxyless {
				o = xds.Accepts // it has no say
			}
		}
		if o != xds.Rejects {
			c.judge.found(l, o, now)
			continue
		}
		seat := c.judge.begin(l, about.Host, s.reach, now)
		if seat == nil {
			continue
		}
		hearings.Go(func() {
			h := hearing{Catalog: c, scope: s, about: about, past: l.past, seat: seat}
			r, err := h.hold(ctx)
			if ctx.Err() == nil {
				h.report(r.ended, err)
			}
			c.judge.done(l, r, time.Now())
		})
	}
}

// scopeOf returns the scope whose collection it is, or nil.
func (c *Catalog) scopeOf(coll *xds.Collection) *scope {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for s := range c.following {
		if slices.Contains(s.all(), coll) {
			return s
		}
	}
	return nil
}

// report says how the hearing ended, if it was one.
func (h *hearing) report(end string, err error) {
	if end == "" || end == moot {
		return
	}
	h.metrics.complaints.WithLabelValues(end).Inc()
	if end != endedQuarantined && end != endedAgain && h.logged.Allow() {
		h.log.Warn("no object is set aside for what a client rejects", "why", end, "node_id", h.about.Node, "peer", h.about.Peer, "type_url", h.about.TypeURL,
			"reject", h.about.Error, "err", err)
	}
}

// hold holds the hearing and returns what came of it: nothing, if all was heard before.
func (h *hearing) hold(ctx context.Context) (r result, err error) {
	now := time.Now()
	h.judge.think(h.about.Host)
	thought := sync.OnceFunc(h.judge.thought)
	defer thought()
	h.begun = h.turn()
	_ = h.catchUp(context.Background(), h.scope) // so that all that the client rejects is made of what there was at that turn, or of what has changed since
	var o xds.Opinion
	if h.about, o = h.witnesses().Complaint(h.about.StreamID, h.about.TypeURL); o != xds.Rejects || h.about.Collection != h.scope.collection(h.about.TypeURL) {
		return result{ended: moot}, nil
	}
	h.rejected = h.news(now)
	if len(h.rejected) == 0 {
		return result{}, nil
	}
	if !h.isTheSame() {
		h.past.upTo = resource.Key{} // of this, none were tried
	}
	h.rejected, h.named = named(h.rejected, h.about.Error)
	r.past = h.now()
	defer h.dismiss()
	r.ended, err = h.judged(ctx, now, thought)
	switch r.ended {
	case endedUnheard:
		_, r.again = h.judge.believes(h.about.Host, now)
	case endedLimit:
		r.again = now.Add(disbelief)
	case endedUnexplained, endedContradicted:
		if r.upTo = h.upTo; r.upTo != (resource.Key{}) { // then the others
			r.again = now
		}
	}
	return r, err
}

// news returns what was not heard before of what is rejected. If something has changed since that bears on it, all of it is news.
func (h *hearing) news(now time.Time) []xds.Resource {
	all := h.about.Rejected
	switch {
	case !h.past.again.IsZero() && !now.Before(h.past.again), len(h.past.about) == 0 && (h.past.whole == sum{} || h.past.whole != h.whole()), h.hasChanged(h.past.turn, all):
		return all
	case len(h.past.about) == 0:
		return nil
	}
	return slices.DeleteFunc(slices.Clone(all), func(r xds.Resource) bool { return slices.Contains(h.past.about, r) })
}

// isTheSame says whether nothing is rejected that was not heard before.
func (h *hearing) isTheSame() bool {
	if len(h.past.about) == 0 {
		return h.past.whole == h.whole()
	}
	return !slices.ContainsFunc(h.about.Rejected, func(r xds.Resource) bool { return !slices.Contains(h.past.about, r) })
}

// sum stands for resources that are too many to be kept.
type sum [sha256.Size]byte

// whole is that of what is rejected.
func (h *hearing) whole() sum {
	var d digest
	for _, r := range h.about.Rejected {
		d.text(r.Name, r.Version)
	}
	return sha256.Sum256(d)
}

// now is what will have been heard after the hearing.
func (h *hearing) now() past {
	if len(h.rejected) > maxRejected {
		return past{whole: h.whole(), turn: h.begun}
	}
	p := past{turn: h.begun}
	for _, one := range h.about.Rejected {
		if slices.Contains(h.rejected, one) || slices.Contains(h.past.about, one) {
			p.about = append(p.about, one)
		}
	}
	if len(p.about) > maxRejected {
		return past{whole: h.whole(), turn: h.begun}
	}
	return p
}

// judged finds out whose fault it is that something is rejected, and returns how that ended.
func (h *hearing) judged(ctx context.Context, now time.Time, thought func()) (end string, err error) {
	if ofTheMachine(h.about.Error) {
		return endedMachine, nil
	}
	if ok, _ := h.judge.believes(h.about.Host, now); !ok {
		return endedUnheard, nil
	}
	if len(h.rejected) > maxRejected {
		return endedUnexplained, errTooMuch
	}
	if h.rejected = h.uncontradicted(); len(h.rejected) == 0 {
		return endedContradicted, nil
	}
	suspects, cleared := h.suspects()
	switch {
	case len(suspects) == 0 && cleared:
		return endedContradicted, nil
	case len(suspects) == 0:
		return endedUnexplained, nil
	}
	thought()
	guilty, err := h.find(ctx, suspects)
	switch {
	case len(guilty) > 0:
		return endedQuarantined, err
	case errors.Is(err, errWitnessed):
		return endedContradicted, err
	case errors.Is(err, errChanged) || err == nil && !h.limited && h.turn() > h.begun:
		return endedAgain, nil
	case h.limited:
		return endedLimit, nil
	case errors.Is(err, errNotContent) && !h.knowsNothing() && h.upTo == (resource.Key{}) || errors.Is(err, errNoAnswer) || errors.Is(err, errGone) && time.Since(now) > h.judge.patience/patient:
		h.judge.disbelieve(h.about.Host, now)
	}
	return endedUnexplained, err
}

// knowsNothing says whether the client never had anything of what it rejects: what is wrong may have been so from the start.
func (h *hearing) knowsNothing() bool {
	return !slices.ContainsFunc(h.rejected, func(r xds.Resource) bool { return !h.about.Lacks[r.Name] })
}

// find sets those of the suspects aside whom the client rejects, and returns them. An error is why it cannot be told, or not of all.
func (h *hearing) find(ctx context.Context, suspects []*trial) (guilty []*aside, err error) {
	ctx, stop := context.WithTimeoutCause(ctx, h.judge.patience, errNoAnswer)
	defer stop()
	come := h.foresee(versions(suspects))
	defer come()
	slices.SortFunc(suspects, before)
	s := search{client: h, suspects: suspects, fresh: h.knowsNothing()}
	was := versionsOf(h.rejected, h.about.Collection)
	err = h.apart(ctx, s.asidesFrom(0), func() error {
		// What is the same in any case was only sent with what is rejected, and may not be sent again soon.
		h.matters = slices.DeleteFunc(versionsOf(h.rejected, h.heard()), func(r xds.Resource) bool { return slices.Contains(was, r) })
		if len(h.matters) == 0 {
			return h.doubt(errNoEffect)
		}
		switch content, err := h.content(ctx); {
		case err != nil:
			return err
		case !content:
			return h.doubt(errNotContent)
		}
		err := s.run(ctx, maxOfComplainer)
		h.limited = s.limited
		if err != nil && !errors.Is(err, errChanged) || len(s.guilty) == 0 {
			return err
		}
		found := h.unwitnessed(s.guilty)
		if len(found) == 0 {
			return errWitnessed
		}
		var changed error
		if guilty, changed = h.convict(found); err == nil { // before the client sees again what all see
			err = changed
		}
		return err
	})
	return guilty, err
}

// heard is the collection that the client sees while it is heard.
func (h *hearing) heard() *xds.Collection { return h.booth.scope.collection(h.about.TypeURL) }

// try has objects be set aside for the client, and reports whether it takes that.
func (h *hearing) try(ctx context.Context, tried []*aside) (bool, error) {
	s := h.booth.scope
	h.mu.Lock()
	s.tried = tried
	h.follow(s, nil)
	h.mu.Unlock()
	_ = h.catchUp(context.Background(), s)
	return h.content(ctx)
}

// content waits until the client has said what it thinks of that about which it complained, as it is now, and reports whether it takes that.
func (h *hearing) content(ctx context.Context) (bool, error) {
	look := time.NewTicker(lookAgain)
	defer look.Stop()
	for {
		switch o, why := h.witnesses().Opinion(h.about.StreamID, h.heard(), versionsOf(h.matters, h.heard())); o {
		case xds.Accepts:
			return true, nil
		case xds.Rejects:
			return h.named && !h.mentioned(why), nil
		case xds.Gone:
			return false, errGone
		}
		select {
		case <-h.seat.answered:
		case <-look.C:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// versionsOf returns resources in the versions that a collection has.
func versionsOf(some []xds.Resource, in *xds.Collection) (all []xds.Resource) {
	for _, r := range some {
		r.Version = ""
		if e := in.Get(r.Name); e != nil {
			r.Version = e.Version
		}
		all = append(all, r)
	}
	return all
}

// mentioned says whether a rejection is of what the complaint is about.
func (h *hearing) mentioned(why string) bool {
	return slices.ContainsFunc(h.rejected, func(r xds.Resource) bool { return mentions(why, r.Name) })
}

// turn counts the changes of objects.
func (h *hearing) turn() uint64 {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.quarantine.turn
}

// doubt returns err, or, if objects have changed since the hearing began, that nothing can be said for that.
func (h *hearing) doubt(err error) error {
	if h.turn() > h.begun {
		return errChanged
	}
	return err
}

// versions yields all that objects are, and were, as far as they may come again.
func versions(objects []*trial) iter.Seq[*resource.Resource] {
	return func(yield func(*resource.Resource) bool) {
		for _, t := range objects {
			for _, r := range t.versions() {
				if r != nil && !yield(r) {
					return
				}
			}
		}
	}
}

// convict sets those aside who are guilty, for as long as they do not change, unless there are too many, and returns them.
func (h *hearing) convict(guilty []*aside) (set []*aside, err error) {
	why := Quarantined{
		Since: time.Now(), TypeURL: h.about.TypeURL, Resources: slices.Sorted(maps.Keys(names(h.rejected))),
		Error: h.about.Error, Node: h.about.Node, Peer: h.about.Peer, host: h.about.Host,
	}
	toAll, inUse := h.isToldToOthers(), h.inUse()
	come := h.foresee(versions(trials(guilty)))
	defer come()
	h.mu.Lock()
	keys := make([]resource.Key, 0, len(guilty))
	for _, a := range guilty {
		of := why
		if !toAll || a.turn == 0 { // what was there from the start may be accepted by those who are yet to come
			of.of, of.Only = h.scope.reach, h.scope.profile.String()
		}
		given, failed := h.quarantine.convict(a, of, func(r reach) bool { return inUse[r] })
		switch {
		case errors.Is(failed, errNoRoom):
			h.limited = true
		case failed != nil:
			err = failed
		default:
			set, keys = append(set, a), append(append(keys, a.key), given...)
		}
	}
	following := h.set(keys, h.last)
	h.mu.Unlock()
	h.keep() // before anybody is told: after a crash, it would not be known what to serve to those who were
	h.catchUpAll(following)
	for _, a := range set {
		h.log.Error("an object is in quarantine for Envoys, which are served what it was before, until it changes", "key", a.key.String(), "origin", a.now.Origin().String(),
			"node_id", why.Node, "peer", why.Peer, "to_all", toAll && a.turn > 0, "type_url", why.TypeURL, "reject", why.Error)
	}
	return set, err
}

func trials(all []*aside) (of []*trial) {
	for _, a := range all {
		of = append(of, a.trial)
	}
	return of
}

// Quarantined returns what is in quarantine since Envoys reject it, in order of key.
func (c *Catalog) Quarantined() []Quarantined {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.quarantine.list()
}
