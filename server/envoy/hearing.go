package envoy

import (
	"context"
	"errors"
	"iter"
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
	matters  []xds.Resource // of these, what is otherwise with some objects set aside
	named    bool           // by the client
	begun    uint64         // after which change
	limited  bool           // there was no room for one more in quarantine
	booth    *booth         // where it is held
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
)

var (
	errNoAnswer   = errors.New("the client does not answer")
	errNotContent = errors.New("the client rejects what was there before as well")
	errNoEffect   = errors.New("nothing that changed lately makes a difference")
	errTooMuch    = errors.New("the client rejects too much, and does not say what of it")
	errGone       = errors.New("the client is gone")
	errChanged    = errors.New("other objects have changed meanwhile")
)

// hear hears complaints until ctx ends.
func (c *Catalog) hear(ctx context.Context) {
	look := time.NewTimer(time.Hour)
	defer look.Stop()
	for {
		a, wait := c.judge.next(time.Now())
		if a == nil {
			if wait > 0 {
				look.Reset(wait)
			}
			select {
			case <-ctx.Done():
				return
			case <-c.judge.bell:
			case <-look.C:
			}
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
		if end != endedQuarantined && end != endedAgain && c.logged.Allow() {
			c.log.Warn("no object is set aside for what a client rejects", "why", end, "node_id", a.Node, "peer", a.Peer, "type_url", a.TypeURL, "reject", a.Error, "err", err)
		}
	}
}

// hold holds the hearing and returns how it ended; nothing for a complaint that is none of the catalog's.
func (h *hearing) hold(ctx context.Context) (end string, err error) {
	now := time.Now()
	if h.look(); h.scope == nil {
		return "", nil
	}
	switch {
	case ofTheMachine(h.about.Error):
		return endedMachine, nil
	case !h.judge.believes(h.about.Host, now):
		return endedUnheard, nil
	}
	h.rejected, h.named = named(h.witnesses().Rejected(h.about.StreamID, h.about.Collection), h.about.Error)
	switch n := len(h.rejected); {
	case n == 0:
		return "", nil // the client is gone
	case n > maxRejected:
		return endedUnexplained, errTooMuch
	}
	if h.rejected = h.uncontradicted(); len(h.rejected) == 0 {
		return endedContradicted, nil
	}
	h.begun = h.turn()
	suspects, cleared := h.suspects()
	switch {
	case len(suspects) == 0 && cleared:
		return endedContradicted, nil
	case len(suspects) == 0:
		return endedUnexplained, nil
	}
	done := h.judge.ask(h.about)
	guilty, err := h.find(ctx, suspects)
	changed := errors.Is(err, errChanged) || h.turn() > h.begun
	done(changed) // it may be something else that the client rejects by now
	again := errors.Is(err, errChanged) || err == nil && len(guilty) == 0 && !h.limited && changed
	switch {
	case len(guilty) > 0:
		return endedQuarantined, err
	case again:
		return endedAgain, nil
	case h.limited:
		return endedLimit, nil
	case errors.Is(err, errNotContent) || errors.Is(err, errNoAnswer) || time.Since(now) > h.judge.patience/patient:
		h.judge.disbelieve(h.about.Host, now)
	}
	return endedUnexplained, err
}

// look finds the scope and the collection that the client sees by now, which may have been led elsewhere since it complained.
func (h *hearing) look() {
	w := h.witnesses()
	if w == nil {
		return
	}
	of := make(map[*xds.Collection]*scope)
	for _, s := range h.scopesOfEnvoys() {
		if coll := s.collection(h.about.TypeURL); coll != nil {
			of[coll] = s
		}
	}
	w.Sees(func(stream uint64, c *xds.Collection, _ func(string) bool) bool {
		if stream != h.about.StreamID || of[c] == nil {
			return false
		}
		about := *h.about
		about.Collection = c
		h.about, h.scope = &about, of[c]
		return true
	})
}

// uncontradicted returns what was rejected and no other Envoy accepted as it is.
func (h *hearing) uncontradicted() []xds.Resource {
	envoys := make(map[*xds.Collection]bool) // of the type
	for _, s := range h.scopesOfEnvoys() {
		envoys[s.collection(h.about.TypeURL)] = true
	}
	return slices.DeleteFunc(h.rejected, func(r xds.Resource) bool {
		return h.accepted(r, func(c *xds.Collection) bool { return envoys[c] })
	})
}

// accepted says whether another client accepted a resource of one of some collections.
func (h *hearing) accepted(r xds.Resource, of func(*xds.Collection) bool) bool {
	return h.witnesses().Accepted(r, func(stream uint64, c *xds.Collection) bool { return stream != h.about.StreamID && of(c) })
}

func (h *hearing) scopesOfEnvoys() (some []*scope) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for s := range h.following {
		if s.profile.role != proxyless {
			some = append(some, s)
		}
	}
	return some
}

// suspects returns the objects that changed lately and have a part in what was rejected, the one that changed last first, and whether there
// would be others, or any, if no other Envoy had accepted what is made of them.
func (h *hearing) suspects() (some []*trial, cleared bool) {
	all, hosts := h.bearing()
	others := h.otherScopes()
	for i, t := range all {
		if h.isWitnessed(t, hosts[i], others) {
			cleared = true
			continue
		}
		if some = append(some, t); len(some) == maxSuspects {
			break
		}
	}
	return some, cleared
}

// bearing returns the objects on trial that bear on what was rejected, and on which hosts each bears.
func (h *hearing) bearing() (all []*trial, on []map[string]struct{}) {
	hosts := h.scope.hostsOf(h.about.TypeURL, h.names())
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.quarantine.suspects(h.scope.reach) {
		if h.bearsOn(t, hosts) {
			all, on = append(all, t), append(on, h.bears(t))
		}
	}
	return all, on
}

// otherScopes are those of Envoys but for that of the hearing.
func (h *hearing) otherScopes() []*scope {
	return slices.DeleteFunc(h.scopesOfEnvoys(), func(s *scope) bool { return s == h.scope })
}

// isWitnessed says whether another Envoy has accepted something of the same sort that is made of an object as it is, under whatever name, and by whomever
// else it was told. So nobody can speak against what all others have.
func (h *hearing) isWitnessed(t *trial, hosts map[string]struct{}, others []*scope) bool {
	for _, s := range append(slices.Clip(others), h.scope) {
		for _, typeURL := range alike(h.about.TypeURL) {
			coll := s.collection(typeURL)
			if coll == nil {
				continue
			}
			if h.acceptedWide(t.key, s, coll) {
				return true
			}
			for _, name := range h.madeOf(s, t.key, hosts, typeURL) {
				if e := coll.Get(name); e != nil && h.accepted(xds.Resource{Name: name, Version: e.Version}, func(c *xds.Collection) bool { return c == coll }) {
					return true
				}
			}
		}
	}
	return false
}

// alike are the types that say the same in other forms.
func alike(typeURL string) []string {
	if typeURL == xds.RouteURL || typeURL == xds.VHostURL {
		return []string{xds.RouteURL, xds.VHostURL}
	}
	return []string{typeURL}
}

// bearsOn says whether an object, as it is or as it was, bears on one of some hosts to the client; h.mu is held.
func (h *hearing) bearsOn(t *trial, hosts map[string]struct{}) bool {
	return slices.ContainsFunc(t.versions(), func(r *resource.Resource) bool {
		wide := false
		touched := h.under(map[resource.Key]*resource.Resource{t.key: r}, func() { wide = slices.Contains(h.mesh.ofNoHost(h.scope.profile), t.key) })
		return wide || meet(touched, hosts)
	})
}

// acceptedWide says whether clients of a scope have accepted something that was rejected, as they are told of it, and an object is for them that has no hosts.
func (h *hearing) acceptedWide(key resource.Key, s *scope, coll *xds.Collection) bool {
	h.mu.RLock()
	is := slices.Contains(h.mesh.ofNoHost(s.profile), key)
	h.mu.RUnlock()
	return is && coll != h.about.Collection && slices.ContainsFunc(h.rejected, func(r xds.Resource) bool {
		e := coll.Get(r.Name)
		return e != nil && h.accepted(xds.Resource{Name: e.Name, Version: e.Version}, func(c *xds.Collection) bool { return c == coll })
	})
}

func (h *hearing) names() map[string]bool {
	names := make(map[string]bool, len(h.rejected))
	for _, r := range h.rejected {
		names[r.Name] = true
	}
	return names
}

// find sets those of the suspects aside whom the client rejects, and returns them. An error is why it cannot be told, or not of all.
func (h *hearing) find(ctx context.Context, suspects []*trial) (guilty []*aside, err error) {
	ctx, stop := context.WithTimeoutCause(ctx, h.judge.patience, errNoAnswer)
	defer stop()
	come := h.foresee(versions(suspects))
	defer come()
	slices.SortFunc(suspects, before)
	s := search{hearing: h, suspects: suspects}
	was := versionsOf(h.rejected, h.about.Collection)
	err = h.apart(s.asidesFrom(0), func() error {
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
		if err := s.run(ctx, maxOfComplainer); err != nil && !errors.Is(err, errChanged) || len(s.guilty) == 0 {
			return err
		}
		guilty, err = h.convict(s.guilty) // before the client sees again what all see
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
	h.catchUp(s)
	return h.content(ctx)
}

// content waits until the client has said what it thinks of that about which it complained, as it is now, and reports whether it takes that.
func (h *hearing) content(ctx context.Context) (bool, error) {
	for {
		switch h.witnesses().Opinion(h.about.StreamID, h.heard(), versionsOf(h.matters, h.heard())) {
		case xds.Accepts:
			return true, nil
		case xds.Rejects:
			return h.named && !h.mentioned(h.judge.said().Error), nil
		case xds.Gone:
			return false, errGone
		}
		select {
		case <-h.judge.answered:
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
			for _, r := range append(slices.Clone(t.earlier), t.now) {
				if r != nil && !yield(r) {
					return
				}
			}
		}
	}
}

// convict sets those aside who are guilty, for as long as they do not change, unless there are too many, and returns them.
func (h *hearing) convict(guilty []*aside) (set []*aside, err error) {
	why := Quarantined{Since: time.Now(), TypeURL: h.about.TypeURL, Error: h.about.Error, Node: h.about.Node, Peer: h.about.Peer, host: h.about.Host}
	why.Resources = slices.Sorted(maps.Keys(h.names()))
	if !h.isToldToOthers() {
		why.of, why.Only = h.scope.reach, h.scope.profile.String()
	}
	come := h.foresee(versions(trials(guilty)))
	defer come()
	h.mu.Lock()
	keys := make([]resource.Key, 0, len(guilty))
	for _, a := range guilty {
		switch {
		case !h.quarantine.hasRoom(why.host):
			h.limited = true
		case !h.quarantine.convict(a, why):
			err = errChanged
		default:
			set, keys = append(set, a), append(keys, a.key)
		}
	}
	following := h.set(keys, h.last)
	h.mu.Unlock()
	h.catchUpAll(following)
	h.keep()
	for _, a := range set {
		h.log.Error("an object is in quarantine for Envoys, which are served what it was before, until it changes", "key", a.key.String(), "origin", a.now.Origin().String(),
			"node_id", why.Node, "peer", why.Peer, "only", why.Only, "type_url", why.TypeURL, "reject", why.Error)
	}
	return set, err
}

func trials(all []*aside) (of []*trial) {
	for _, a := range all {
		of = append(of, a.trial)
	}
	return of
}

// isToldToOthers says whether clients of other profiles ask for something that was rejected, which is the same to them; or whether there are none to whom
// it could be otherwise.
func (h *hearing) isToldToOthers() bool {
	of := make(map[*xds.Collection]bool) // of other profiles
	for _, s := range h.otherScopes() {
		if s.reach == h.scope.reach {
			continue
		}
		for _, typeURL := range alike(h.about.TypeURL) {
			if coll := s.collection(typeURL); coll != nil {
				of[coll] = true
			}
		}
	}
	others := false
	return h.witnesses().Sees(func(_ uint64, c *xds.Collection, wants func(string) bool) bool {
		others = others || of[c]
		return of[c] && slices.ContainsFunc(h.rejected, func(r xds.Resource) bool {
			e := c.Get(r.Name)
			return e != nil && e.Version == r.Version && wants(r.Name)
		})
	}) || !others
}

// Quarantined returns what is in quarantine since Envoys reject it, in order of key.
func (c *Catalog) Quarantined() []Quarantined {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.quarantine.list()
}
