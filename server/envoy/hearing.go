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
	named    bool           // by the client
	begun    uint64         // after which change
	limited  bool           // there was no room for one more in quarantine
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
	if h.scope = h.scopeOf(h.about.Collection); h.scope == nil || h.scope.profile.role == proxyless || h.witnesses() == nil {
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
	suspects, cleared := h.suspects()
	switch {
	case len(suspects) == 0 && cleared:
		return endedContradicted, nil
	case len(suspects) == 0:
		return endedUnexplained, nil
	}
	done := h.judge.ask(h.about)
	guilty, err := h.find(ctx, suspects)
	if err != nil {
		h.putBack(suspects) // but for those in quarantine
	}
	again := errors.Is(err, errChanged) || err == nil && len(guilty) == 0 && !h.limited && h.turn() > h.begun
	done(again)
	switch {
	case len(guilty) > 0:
		return endedQuarantined, err
	case again:
		return endedAgain, nil
	case h.limited:
		return endedLimit, nil
	case errors.Is(err, errNotContent) || errors.Is(err, errNoAnswer):
		h.judge.disbelieve(h.about.Host, now)
	}
	return endedUnexplained, err
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

// blameless returns the objects that have a part in what another Envoy accepted of what it is told under a name that was rejected.
func (h *hearing) blameless() map[resource.Key]bool {
	all := make(map[resource.Key]bool)
	for _, s := range h.scopesOfEnvoys() {
		coll := s.collection(h.about.TypeURL)
		ofNoHost := h.ofNoHost(s.profile)
		for _, r := range h.rejected {
			if coll == nil || coll == h.about.Collection {
				continue // what is the same was looked at
			}
			e := coll.Get(r.Name)
			if e != nil && h.accepted(xds.Resource{Name: e.Name, Version: e.Version}, func(c *xds.Collection) bool { return c == coll }) {
				s.objectsOf(h.about.TypeURL, r.Name, all)
				for _, key := range ofNoHost {
					all[key] = true
				}
			}
		}
	}
	return all
}

func (h *hearing) ofNoHost(p profile) []resource.Key {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.mesh.ofNoHost(p)
}

// suspects returns the objects that changed lately and have a part in what was rejected, the one that changed last first, and whether there
// would be others, or any, if nobody else had accepted what is made of them.
func (h *hearing) suspects() (some []*trial, cleared bool) {
	hosts := h.scope.hostsOf(h.about.TypeURL, h.names())
	blameless := h.blameless()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.quarantine.suspects() {
		if !h.bearsOn(t, hosts) {
			continue
		}
		if blameless[t.key] {
			cleared = true
			continue
		}
		if some = append(some, t); len(some) == maxSuspects {
			break
		}
	}
	return some, cleared
}

// bearsOn says whether an object, as it is or as it was, bears on one of some hosts to the client; h.mu is held.
func (h *hearing) bearsOn(t *trial, hosts map[string]bool) (bears bool) {
	touched := make(map[string]struct{})
	for _, r := range append(slices.Clone(t.earlier), t.now) { // the last one is what there is
		_ = h.mesh.set(t.key, r, touched) // that it cannot be decoded was said when it came
		bears = bears || slices.Contains(h.mesh.ofNoHost(h.scope.profile), t.key)
	}
	h.mesh.touchOthers(touched)
	for host := range touched {
		bears = bears || hosts[host]
	}
	return bears
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
	h.begun = h.turn()
	was := h.versions()
	h.setAside(suspects)
	if slices.Equal(was, h.versions()) {
		return nil, h.doubt(errNoEffect)
	}
	content, err := h.content(ctx)
	if err != nil {
		return nil, err
	}
	if !content {
		return nil, h.doubt(errNotContent)
	}
	return h.isolate(ctx, suspects)
}

// setAside sets suspects aside for what they were when they were certainly good.
func (h *hearing) setAside(suspects []*trial) {
	h.redo(suspects, func() { h.quarantine.set(suspects, maxEarlier) })
}

// isolate finds those whom the client rejects among suspects of whom there is at least one. All are set aside; the innocent are put back.
func (h *hearing) isolate(ctx context.Context, suspects []*trial) (guilty []*trial, err error) {
	if len(suspects) == 1 {
		return h.convict(ctx, suspects[0])
	}
	first, rest := suspects[:len(suspects)/2], suspects[len(suspects)/2:]
	innocent, err := h.innocent(ctx, first)
	switch {
	case err != nil:
		return nil, err
	case innocent:
		return h.isolate(ctx, rest)
	}
	if guilty, err = h.isolate(ctx, first); err != nil {
		return guilty, err
	}
	if innocent, err = h.innocent(ctx, rest); err != nil || innocent {
		return guilty, err
	}
	more, err := h.isolate(ctx, rest)
	return append(guilty, more...), err
}

// innocent puts suspects back, and reports whether the client is content with that; else they are set aside again.
func (h *hearing) innocent(ctx context.Context, suspects []*trial) (bool, error) {
	h.putBack(suspects)
	content, err := h.content(ctx)
	if err != nil || content {
		return content, err
	}
	h.setAside(suspects)
	content, err = h.content(ctx)
	if err == nil && !content {
		err = h.doubt(errNotContent)
	}
	return false, err
}

// content waits until the client has said what it thinks of that about which it complained, as it is now, and reports whether it takes that.
func (h *hearing) content(ctx context.Context) (bool, error) {
	patience := time.NewTimer(answerPatience)
	defer patience.Stop()
	for {
		switch h.witnesses().Opinion(h.about.StreamID, h.about.Collection, h.versions()) {
		case xds.Accepts:
			return true, nil
		case xds.Rejects:
			return h.named && !h.mentioned(h.judge.said().Error), nil
		case xds.Gone:
			return false, errGone
		}
		select {
		case <-h.judge.answered:
		case <-patience.C:
			return false, errNoAnswer
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// versions are those that there are now of what was rejected.
func (h *hearing) versions() (all []xds.Resource) {
	for _, r := range h.rejected {
		r.Version = ""
		if e := h.about.Collection.Get(r.Name); e != nil {
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

// doubt returns err, or, if objects have changed since the hearing began that bear on what was rejected, that nothing can be said for that.
func (h *hearing) doubt(err error) error {
	hosts := h.scope.hostsOf(h.about.TypeURL, h.names())
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.quarantine.suspects() {
		if t.turn > h.begun && h.bearsOn(t, hosts) {
			return errChanged
		}
	}
	return err
}

// redo translates objects anew of which with changes whether they are set aside.
func (c *Catalog) redo(objects []*trial, with func()) {
	come := c.foresee(versions(objects))
	defer come()
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

func (h *hearing) putBack(objects []*trial) {
	h.redo(objects, func() { h.quarantine.acquit(objects) })
}

// isGuilty says whether the client rejects what there is with an object that is set aside, and nothing else changed meanwhile.
func (h *hearing) isGuilty(ctx context.Context, one []*trial) (bool, error) {
	const tries = 5 // while other objects change
	for range tries {
		before, turn := h.versions(), h.turn()
		innocent, err := h.innocent(ctx, one)
		if err != nil || innocent {
			return false, err
		}
		if h.turn() == turn && slices.Equal(before, h.versions()) {
			return true, nil
		}
	}
	return false, errChanged
}

// convict leaves an object in quarantine if it is guilty, for the newest version of before that the client takes, unless there are too many.
func (h *hearing) convict(ctx context.Context, t *trial) (guilty []*trial, err error) {
	one := []*trial{t}
	if is, err := h.isGuilty(ctx, one); err != nil || !is {
		return nil, err
	}
	for newer := range len(t.earlier) {
		h.redo(one, func() { h.quarantine.set(one, newer) })
		content, err := h.content(ctx)
		if err != nil {
			return nil, err
		}
		if content {
			break
		}
	}
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
	h.keep()
	switch {
	case !may:
		h.limited = true
		h.putBack(one)
		return nil, nil
	case !convicted:
		return nil, errChanged
	}
	h.log.Error("an object is in quarantine for Envoys, which are served what it was before, until it changes", "key", t.key.String(), "origin", t.now.Origin().String(),
		"node_id", why.Node, "peer", why.Peer, "type_url", why.TypeURL, "reject", why.Error)
	return one, nil
}

// Quarantined returns what is in quarantine since Envoys reject it, in order of key.
func (c *Catalog) Quarantined() []Quarantined {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.quarantine.list()
}
