package xds

import (
	"cmp"
	"iter"
	"maps"
	"runtime"
	"slices"
	"time"
)

// What a client has, what it wants, and the one function that says what it is to be sent.

// variant is how a type is spoken of on a stream: by differences, by a part of its resources at a time, or in full.
type variant struct {
	delta          bool
	partial        bool // SotW: absence from a response says nothing
	onePerResponse bool // delta: a response has one resource
	byName         bool // a wildcard stands for nothing
	aliases        bool // delta: what is not there is said by an alias
}

// inFull says whether each response to a client that wants w is everything again.
func (v variant) inFull(w *wants) bool { return !v.delta && (!v.partial || w.all) }

// takes says whether a response can take something away from a client that wants w.
func (v variant) takes(w *wants) bool { return v.delta || v.inFull(w) }

// wants is what a client asked for of a type.
type wants struct {
	all   bool // a wildcard
	names map[string]struct{}
}

// add adds a name. Clients of one kind want the same names, of which there is one copy for all of them: that of the entry in a state.
func (w *wants) add(name string, of *state) {
	if w.names == nil {
		w.names = make(map[string]struct{})
	}
	if e := of.get(name); e != nil {
		name = e.Name
	}
	w.names[name] = struct{}{}
	giveWay(len(w.names))
}

// of yields what a state has of the names.
func (w *wants) of(s *state) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		looked := 0
		if s.len < len(w.names) {
			for e := range s.all() {
				if _, ok := w.names[e.Name]; ok && !yield(e) {
					return
				}
				looked++
				giveWay(looked)
			}
			return
		}
		for name := range w.names {
			if e := s.get(name); e != nil && !yield(e) {
				return
			}
			looked++
			giveWay(looked)
		}
	}
}

// giveWay lets others have the processor after some hundreds of names. A stream with very many works on them for longer than Go leaves
// a goroutine alone, and twenty such streams would have everybody wait twenty times as long for each step of his own.
func giveWay(names int) {
	if names%512 == 511 {
		runtime.Gosched()
	}
}

// cover says whether the client wants name.
func (w *wants) cover(name string) bool {
	_, ok := w.names[name]
	return ok || w.all
}

// holding is what a client has of a type: of what it wants, what is in the state at, but for what it lacks. A client that
// has had no response has the state with nothing in it, and what it brought along from an earlier stream.
type holding struct {
	at *state
	// gone are the versions, by name, of what the client brought along besides, of which there was nothing when it came back. It is
	// yet to be told so. What they were is not known: they are no entries, which could be sent.
	gone    map[string]string
	brought *versions // delta: initial_resource_versions; nil if there are none
	version string    // SotW: version_info, of everything; empty if there is none
	// lacks are names of which the client has nothing, whatever the rest says, each with whether that was said.
	lacks map[string]told
	stale map[string]struct{} // names that are to be sent once more, if they are there: the client waits for them
	asks  bool                // the next response is due even if there is nothing in it
	again bool                // delta: a wildcard is new, and of what it covers the client may have, or have dropped, anything
}

// told is whether a client that lacks a resource knows that there is none. If not, the next response has to speak of it.
type told bool

// owe makes the next response speak of name.
func (h *holding) owe(name string) {
	if h.lacks == nil {
		h.lacks = make(map[string]told)
	}
	h.lacks[name] = false
}

// renew makes the next response have name, if it is there.
func (h *holding) renew(name string) {
	if h.stale == nil {
		h.stale = make(map[string]struct{})
	}
	h.stale[name] = struct{}{}
}

// forget is for a name that the client no longer wants.
func (h *holding) forget(name string) {
	delete(h.lacks, name)
	delete(h.stale, name)
}

// forgetAllBut is forget for all names but those that the client wants.
func (h *holding) forgetAllBut(names map[string]struct{}) {
	unwanted := func(name string) bool { _, wanted := names[name]; return !wanted }
	maps.DeleteFunc(h.lacks, func(name string, _ told) bool { return unwanted(name) })
	maps.DeleteFunc(h.stale, func(name string, _ struct{}) bool { return unwanted(name) })
}

// split parts entries into those that the client has by name, and the others.
func (h *holding) split(w *wants, entries []*Entry) (named, others []*Entry) {
	for _, e := range entries {
		_, lacks := h.lacks[e.Name]
		if _, ok := w.names[e.Name]; ok && !lacks {
			named = append(named, e)
		} else {
			others = append(others, e)
		}
	}
	return named, others
}

// fresh says whether the client has nothing, as far as is known: it is not one that comes back.
func (h *holding) fresh() bool { return h.at == nothing && h.brought == nil && h.version == "" }

// asked says whether the next response answers a request, not only a change.
func (h *holding) asked() bool {
	for _, told := range h.lacks {
		if !told {
			return true
		}
	}
	return h.asks || h.brought != nil || len(h.stale) > 0
}

// keepOnly takes from the client all but names, which are what it wanted until now.
func (h *holding) keepOnly(names map[string]struct{}) { h.at = h.at.only(names) }

// get returns what the client has under name, if it wants it, or nil.
func (h *holding) get(name string) *Entry {
	if _, lacks := h.lacks[name]; lacks {
		return nil
	}
	return h.at.get(name)
}

// had returns the version of what the client has under name, if it wants it.
func (h *holding) had(name string) (version string, ok bool) {
	if e := h.get(name); e != nil {
		return e.Version, true
	}
	if _, lacks := h.lacks[name]; lacks {
		return "", false
	}
	version, ok = h.gone[name]
	return version, ok
}

// is says whether the client has what is in a state, and nothing else.
func (h *holding) is(s *state) bool { return h.at == s && len(h.gone) == 0 }

// besides returns what a client that keeps what it has goes on to have of what is gone, when it has been brought to goal.
func (h *holding) besides(goal *state, keeps func(name string) bool) map[string]string {
	var gone map[string]string
	for name, version := range h.gone {
		if _, lacks := h.lacks[name]; lacks || goal.get(name) != nil || !keeps(name) {
			continue
		}
		if gone == nil {
			gone = make(map[string]string)
		}
		gone[name] = version
	}
	return gone
}

// due yields what is to be said of goal whether or not it has changed, each name once.
func (h *holding) due(goal *state) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		for name := range h.lacks {
			if e := goal.get(name); e != nil && !yield(e) {
				return
			}
		}
		for name := range h.stale {
			if _, lacks := h.lacks[name]; lacks {
				continue
			}
			if e := goal.get(name); e != nil && !yield(e) {
				return
			}
		}
	}
}

func none(entries iter.Seq[*Entry]) bool {
	for range entries {
		return false
	}
	return true
}

// anyway says whether the name is one of those.
func (h *holding) anyway(name string) bool {
	_, lacks := h.lacks[name]
	_, stale := h.stale[name]
	return lacks || stale
}

// step is what to send to a client, and where that brings it.
type step struct {
	adds    bool // something is new or newer to the client, is said to be missing, or was asked for
	removes bool // something that the client has goes
	to      *state
	has     holding // afterwards

	say     say
	goal    *state
	diff    *diff
	news    []*Entry // what is new or newer to the client, unless it is the difference
	puts    []*Entry // what is listed
	removed []string
	via     *via   // set if the client is to be introduced to something by this
	spans   []span // where puts stand in diff.puts, if they are to be sent from its encoding; else nil
}

// say is what a response consists of.
type say int

const (
	sayList  say = iota // what is listed
	sayDiff             // all of the difference, which all streams on the same way share
	sayState            // all of the state
)

func (p *step) due() bool { return p.adds || p.removes }

// plan says what to send to a client that has h and wants w, to bring it to goal. If keep, it loses nothing yet: the step
// leads to the goal and what it has besides. Neither h nor w is changed.
func plan(v variant, h *holding, w *wants, goal *state, keep bool) step {
	switch {
	case h.version != "" && h.version == goal.version && !goal.given && w.all:
		return step{to: goal, has: holding{at: goal}} // it has it all from an earlier stream
	case h.brought != nil:
		return planResumed(v, h, w, goal, keep)
	}
	p := step{to: goal, goal: goal, diff: noDiff}
	if w.all || h.at != nothing { // else all that is wanted is new, and nobody needs a list of everything
		p.diff = goal.since(h.at)
	}
	var gone map[string]string
	switch {
	case h.again && w.all:
		removed := p.diff.removed
		if keep { // what it has by name; the rest it may not have
			var kept []*Entry
			kept, removed = h.split(w, removed)
			p.to = goal.and(kept)
			gone = h.besides(goal, func(name string) bool { _, ok := w.names[name]; return ok })
		}
		p.diff = goal.since(nothing).and(removed)
	case keep && v.takes(w):
		p.to, p.diff = p.diff.before(goal)
		gone = h.besides(goal, w.cover)
	}
	p.has = holding{at: p.to, gone: gone, lacks: h.untold(p.to, goal)}
	switch {
	case v.delta && w.all && len(h.gone)+len(h.lacks)+len(h.stale) == 0:
		p.say, p.adds, p.removes = sayDiff, len(p.diff.puts) > 0, len(p.diff.removed) > 0
	case !v.delta && w.all:
		p.say, p.removes = sayState, len(p.diff.removed) > 0
		p.adds = len(p.diff.puts) > 0 || p.to == goal && p.to.version != h.at.version && !p.removes || !none(h.due(goal))
	default:
		p.list(v, h, w, goal)
	}
	p.adds = p.adds || h.asks
	return p
}

// list fills in what is to be said to a client that wants names, or lacks some.
func (p *step) list(v variant, h *holding, w *wants, goal *state) {
	p.listPuts(h, w, goal)
	p.news = p.puts
	p.adds = len(p.puts) > 0
	if v.takes(w) {
		for _, e := range p.diff.removed {
			if _, lacks := h.lacks[e.Name]; !lacks && w.cover(e.Name) {
				p.removed, p.removes = append(p.removed, e.Name), true
			}
		}
		for name := range h.gone {
			_, lacks := h.lacks[name]
			_, kept := p.has.gone[name]
			if !lacks && !kept && w.cover(name) && goal.get(name) == nil {
				p.removed, p.removes = append(p.removed, name), true
			}
		}
	}
	if !v.delta {
		if p.removed = nil; v.inFull(w) && (p.due() || h.asks) {
			p.listAll(h, w, goal)
		}
		return
	}
	var missing []string
	for name, told := range h.lacks {
		if !bool(told) && goal.get(name) == nil {
			missing, p.adds = append(missing, name), true
		}
	}
	p.lack(v, missing)
	slices.Sort(p.removed)
}

// lack says that there is nothing of names that the client asked for. That is no news: nothing waits for it to be acknowledged.
func (p *step) lack(v variant, names []string) {
	switch {
	case len(names) == 0:
	case !v.aliases:
		p.removed = append(p.removed, names...)
	default:
		p.puts, p.spans = slices.Clip(p.puts), nil
		for _, name := range names {
			p.puts = append(p.puts, &Entry{Name: name, unknown: true})
		}
		sortEntries(p.puts)
	}
}

// sharedShare is the part of a difference that a stream must want for the difference to be encoded for all streams: one in
// so many of its entries.
const sharedShare = 16

// listPuts lists the changes that the client wants, and what it lacks, each name once.
func (p *step) listPuts(h *holding, w *wants, goal *state) {
	if h.at == nothing && !w.all {
		p.puts = slices.AppendSeq(p.puts, w.of(goal))
		sortEntries(p.puts)
		return
	}
	for i, e := range p.diff.puts {
		if h.anyway(e.Name) || !w.cover(e.Name) {
			continue
		}
		if version, ok := h.gone[e.Name]; ok && version == e.Version && !h.again { // it is there again
			continue
		}
		p.puts = append(p.puts, e)
		if last := len(p.spans) - 1; last >= 0 && p.spans[last].end == i {
			p.spans[last].end++
		} else {
			p.spans = append(p.spans, span{i, i + 1})
		}
	}
	if len(h.gone)+len(h.lacks)+len(h.stale) == 0 && len(p.puts)*sharedShare >= len(p.diff.puts) {
		return
	}
	p.spans = nil
	p.puts = slices.AppendSeq(p.puts, h.due(goal))
	sortEntries(p.puts)
}

// listAll lists all that a client by name has afterwards.
func (p *step) listAll(h *holding, w *wants, goal *state) {
	p.puts, p.spans = make([]*Entry, 0, min(len(w.names), p.to.len+len(h.lacks))), nil
	if p.to == goal {
		p.puts = slices.AppendSeq(p.puts, w.of(goal))
	} else {
		for e := range w.of(p.to) {
			if _, lacks := h.lacks[e.Name]; !lacks {
				p.puts = append(p.puts, e)
			}
		}
		for e := range w.of(goal) {
			if _, lacks := h.lacks[e.Name]; lacks {
				p.puts = append(p.puts, e)
			}
		}
	}
	sortEntries(p.puts)
}

// untold returns what a client lacks of the state to when it has been brought there: if that holds more than goal, for the
// sake of what the client has, the client does not get what it had asked for and is gone.
func (h *holding) untold(to, goal *state) map[string]told {
	if to == goal {
		return nil
	}
	var lacks map[string]told
	for name := range h.lacks {
		if goal.get(name) == nil && to.get(name) != nil {
			if lacks == nil {
				lacks = make(map[string]told)
			}
			lacks[name] = true
		}
	}
	return lacks
}

// planResumed is the plan for the first response to a client that brought versions along.
func planResumed(v variant, h *holding, w *wants, goal *state, keep bool) step {
	p := step{to: goal, goal: goal, has: holding{at: goal}, diff: noDiff}
	var gone map[string]string
	if w.all {
		p.puts, gone = h.compareAll(goal)
	} else {
		p.puts, gone = h.compareNames(w, goal)
	}
	p.news = p.puts
	var missing []string
	look := func(name string) {
		if _, brought := gone[name]; !brought && goal.get(name) == nil {
			missing = append(missing, name)
		}
	}
	for name := range w.names {
		look(name)
	}
	for name := range h.lacks {
		if _, named := w.names[name]; !named {
			look(name)
		}
	}
	p.lack(v, missing)
	p.adds = len(p.puts) > 0 || len(p.removed) > 0 || h.asks
	if len(gone) > 0 && keep {
		p.has.gone = gone
	} else if len(gone) > 0 {
		p.removed, p.removes = slices.AppendSeq(p.removed, maps.Keys(gone)), true
	}
	slices.Sort(p.removed)
	return p
}

// bodies encodes what is said: one body for SotW, one or more for delta.
func (p *step) bodies(v variant, f form) []*body {
	if p.to.minTTL == 0 {
		f = f.withoutTTL()
	}
	switch {
	case p.say == sayState:
		return []*body{p.to.sotwBody(f)}
	case !v.delta:
		return []*body{sotwBodyOf(p.puts, f)}
	case v.onePerResponse:
		return p.oneByOne(f)
	case p.say == sayDiff && p.diff.whole:
		return p.goal.deltaBodiesAll(f)
	case p.say == sayDiff:
		return p.diff.deltaIn(f).wildcard
	case p.spans != nil:
		return p.diff.deltaIn(f).bodies(p.spans, p.removed)
	default:
		return p.goal.deltaBodiesOf(p.puts, p.removed, f)
	}
}

// oneByOne encodes what is said in bodies of one resource each.
func (p *step) oneByOne(f form) []*body {
	switch {
	case p.say == sayDiff:
		return p.diff.deltaIn(f).cut(1, []span{{0, len(p.diff.puts)}}, names(p.diff.removed))
	case p.spans != nil:
		return p.diff.deltaIn(f).cut(1, p.spans, p.removed)
	}
	return encodeRun(p.puts, f, false).cut(1, []span{{0, len(p.puts)}}, p.removed)
}

// changed returns the entries that are new or newer to the client, in order of name.
func (p *step) changed() []*Entry {
	if p.say == sayList {
		return p.news
	}
	return p.diff.puts
}

// moves says whether a step changes something that the client has, and not only tells it what it had asked for.
func (h *holding) moves(p *step) bool {
	return slices.ContainsFunc(p.changed(), func(e *Entry) bool {
		version, had := h.had(e.Name)
		return had && version != e.Version
	})
}

// speaks says whether the response says something about name.
func (p *step) speaks(name string) bool {
	_, removed := slices.BinarySearch(p.removed, name)
	_, changed := slices.BinarySearchFunc(p.changed(), name, compareName)
	return removed || changed
}

func compareName(e *Entry, name string) int { return cmp.Compare(e.Name, name) }

func sortEntries(es []*Entry) {
	slices.SortFunc(es, func(a, b *Entry) int { return cmp.Compare(a.Name, b.Name) })
}

// Pacing spaces out the responses of state-of-the-world types in full, each of which is everything again. The first change
// goes at once. The next waits until Least has passed, or ten times what the client took to acknowledge the last response,
// but by no more than Most: so a client spends a tenth of its time on what we send. Answers to requests do not wait.
// A client that was introduced to something (Type.Introduce) is left with it for Least before it is led elsewhere again.
type Pacing struct {
	Least time.Duration // one second if zero; negative for no pacing
	Most  time.Duration // ten seconds if zero
}

const pacingShare = 10 // one part in so many of a client's time

func (p *Pacing) setDefaults() {
	p.Least = cmp.Or(p.Least, time.Second)
	p.Most = max(cmp.Or(p.Most, 10*time.Second), p.Least)
}

// pace is what a subscription knows of its client's pace.
type pace struct {
	changed time.Time     // when a change was last sent; zero if none was
	led     time.Time     // when the client was last sent what it had been introduced to; zero if it never was
	took    time.Duration // from sending the last response that was acknowledged until then
}

// sending notes that the client, which has h, is sent a response.
func (p *pace) sending(h *holding, now time.Time) {
	if !h.asked() {
		p.changed = now
	}
}

// wait returns how long the next change has to wait, or zero.
func (p *pace) wait(now time.Time, pacing Pacing) time.Duration {
	if p.changed.IsZero() || pacing.Least < 0 {
		return 0
	}
	return max(p.changed.Add(min(max(pacingShare*p.took, pacing.Least), pacing.Most)).Sub(now), 0)
}

// settle returns how long the client is to be left with what it was introduced to, or zero: of two moves at once it would be
// told when it has not begun with the first, and could do neither in order.
func (p *pace) settle(now time.Time, pacing Pacing) time.Duration {
	if p.led.IsZero() || pacing.Least < 0 {
		return 0
	}
	return max(p.led.Add(pacing.Least).Sub(now), 0)
}
