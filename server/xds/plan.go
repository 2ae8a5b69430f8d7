package xds

import (
	"cmp"
	"maps"
	"slices"
)

// variant is how responses of a type are made on a stream: as differences, with a part of the resources, or in full.
type variant struct {
	delta          bool
	partial        bool // SotW: absence from a response is no removal
	onePerResponse bool // delta: a response has one resource
	noWildcard     bool // a wildcard matches no resource
	aliases        bool // delta: a missing name is reported by an alias
}

// inFull says whether each response to a client that wants w has everything.
func (v variant) inFull(w *subscriptionNames) bool { return !v.delta && (!v.partial || w.wildcard) }

// canRemove says whether a response can remove something from a client that wants w.
func (v variant) canRemove(w *subscriptionNames) bool { return v.delta || v.inFull(w) }

// responsePlan is the next response to a client, and the state of the client after it.
type responsePlan struct {
	adds    bool // something is new or newer to the client, is reported as missing, or was requested
	removes bool // something that the client has is removed
	to      *state
	client  clientState // afterwards

	content      content
	goal         *state
	diff         *diff
	newer        []*Entry // entries that are new or newer to the client; of contentList
	puts         []*Entry // of contentList
	removed      []string
	preannounced *preannounced // set if this is an interim response
	spans        []span        // of puts in diff.puts, if the shared encoding is sent; else nil
}

// content is the kind of a response.
type content int

const (
	contentList  content = iota // puts and removed
	contentDiff                 // the whole difference, which streams share
	contentState                // the whole state
)

func (p *responsePlan) due() bool { return p.adds || p.removes }

// plan returns the response that brings a client that has h and wants w to goal. If additionsOnly, it removes no entry:
// it leads to the goal and all other entries of the client. Neither h nor w is changed.
func plan(v variant, h *clientState, w *subscriptionNames, goal *state, additionsOnly bool) responsePlan {
	switch {
	case h.version != "" && h.version == goal.version && !goal.given && w.wildcard:
		return responsePlan{to: goal, client: clientState{state: goal}} // the client has it from an earlier stream
	case h.brought != nil:
		return planResumed(v, h, w, goal, additionsOnly)
	case additionsOnly && !v.delta && h.deletesGone(w, goal):
		return responsePlan{diff: noDiff}
	}
	p := responsePlan{to: goal, goal: goal, diff: noDiff}
	if w.wildcard || h.state != nothing { // else every wanted entry is new, and no difference is needed
		p.diff = goal.since(h.state)
	}
	var absent map[string]string
	switch {
	case h.resendAll && w.wildcard:
		removed := p.diff.removed
		if additionsOnly { // it has those by name; it may not have the rest
			var retained []*Entry
			retained, removed = h.split(w, removed)
			p.to = goal.withPuts(retained)
			absent = h.stillGone(goal, func(name string) bool { _, ok := w.names[name]; return ok })
		}
		p.diff = goal.since(nothing).withRemoved(removed)
	case additionsOnly && v.canRemove(w):
		p.to, p.diff = p.diff.additionsFirst(goal)
		if v.delta {
			absent = h.stillGone(goal, w.includes)
		}
	}
	p.client = clientState{state: p.to, removed: absent, notHeld: h.stillAbsent(p.to, goal)}
	switch {
	case v.delta && w.wildcard && !h.mentionAll && len(h.removed)+len(h.notHeld)+len(h.resend) == 0:
		p.content, p.adds, p.removes = contentDiff, len(p.diff.puts) > 0, len(p.diff.removed) > 0
	case !v.delta && w.wildcard:
		p.content, p.removes = contentState, len(p.diff.removed) > 0
		p.adds = len(p.diff.puts) > 0 || p.to == goal && p.to.version != h.state.version && !p.removes ||
			!hasNoEntries(h.mandatory(goal))
	default:
		p.list(v, h, w, goal)
	}
	p.adds = p.adds || h.mustRespond
	return p
}

// list fills in the response to a client that wants names, or does not have some.
func (p *responsePlan) list(v variant, h *clientState, w *subscriptionNames, goal *state) {
	p.listPuts(h, w, goal)
	p.newer = p.puts
	p.adds = len(p.puts) > 0
	if v.canRemove(w) {
		for _, e := range p.diff.removed {
			if _, notHeld := h.notHeld[e.Name]; !notHeld && w.includes(e.Name) {
				p.removed, p.removes = append(p.removed, e.Name), true
			}
		}
		for name := range h.removed {
			_, notHeld := h.notHeld[name]
			_, isRemoved := p.client.removed[name]
			if !notHeld && !isRemoved && w.includes(name) && goal.get(name) == nil {
				p.removed, p.removes = append(p.removed, name), true
			}
		}
	}
	if !v.delta {
		if p.removed = nil; v.inFull(w) && (p.due() || h.mustRespond) {
			p.listAll(h, w, goal)
		}
		return
	}
	missing := p.missing(h, w, goal)
	p.adds = p.adds || len(missing) > 0
	p.reportAbsent(v, missing)
	slices.Sort(p.removed)
}

// missing returns the requested names that do not exist.
func (p *responsePlan) missing(h *clientState, w *subscriptionNames, goal *state) (missing []string) {
	if h.mentionAll && (w.wildcard || len(p.puts) < len(w.names)) { // else every name exists
		for name := range w.names {
			if goal.get(name) == nil {
				missing = append(missing, name)
			}
		}
	}
	for name, sent := range h.notHeld {
		if _, named := w.names[name]; !bool(sent) && !(named && h.mentionAll) && goal.get(name) == nil {
			missing = append(missing, name)
		}
	}
	return missing
}

// reportAbsent reports requested names as missing.
func (p *responsePlan) reportAbsent(v variant, names []string) {
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

// sharedShare: a stream that wants at least one in sharedShare entries of a difference sends them from its shared
// encoding.
const sharedShare = 16

// listPuts lists the changes that the client wants and the entries that must be sent, each name once.
func (p *responsePlan) listPuts(h *clientState, w *subscriptionNames, goal *state) {
	if h.state == nothing && !w.wildcard {
		p.puts = slices.AppendSeq(p.puts, w.entriesIn(goal))
		sortEntries(p.puts)
		return
	}
	for i, entry := range p.diff.puts {
		if h.mustSend(entry.Name) || !w.includes(entry.Name) {
			continue
		}
		if version, ok := h.removed[entry.Name]; ok && version == entry.Version && !h.resendAll { // it exists again
			continue
		}
		p.puts = append(p.puts, entry)
		if last := len(p.spans) - 1; last >= 0 && p.spans[last].end == i {
			p.spans[last].end++
		} else {
			p.spans = append(p.spans, span{i, i + 1})
		}
	}
	if len(h.removed)+len(h.notHeld)+len(h.resend) == 0 && len(p.puts)*sharedShare >= len(p.diff.puts) {
		return
	}
	p.spans = nil
	p.puts = slices.AppendSeq(p.puts, h.mandatory(goal))
	sortEntries(p.puts)
}

// listAll lists all that a client that subscribes by name has afterwards.
func (p *responsePlan) listAll(h *clientState, w *subscriptionNames, goal *state) {
	p.puts, p.spans = make([]*Entry, 0, min(len(w.names), p.to.len+len(h.notHeld))), nil
	if p.to == goal {
		p.puts = slices.AppendSeq(p.puts, w.entriesIn(goal))
	} else {
		for e := range w.entriesIn(p.to) {
			if _, notHeld := h.notHeld[e.Name]; !notHeld {
				p.puts = append(p.puts, e)
			}
		}
		for e := range w.entriesIn(goal) {
			if _, notHeld := h.notHeld[e.Name]; notHeld {
				p.puts = append(p.puts, e)
			}
		}
	}
	sortEntries(p.puts)
}

// stillAbsent returns the names of notHeld that only the state to has, and not goal: the client does not get them.
func (h *clientState) stillAbsent(to, goal *state) map[string]absenceSent {
	if to == goal {
		return nil
	}
	var notHeld map[string]absenceSent
	for name := range h.notHeld {
		if goal.get(name) == nil && to.get(name) != nil {
			put(&notHeld, name, true)
		}
	}
	return notHeld
}

// planResumed plans the first response to a client that sent the versions it has.
func planResumed(v variant, h *clientState, w *subscriptionNames, goal *state, additionsOnly bool) responsePlan {
	p := responsePlan{to: goal, goal: goal, client: clientState{state: goal}, diff: noDiff}
	var absent map[string]string
	allExist := false
	if w.wildcard {
		p.puts, absent = h.compareAll(goal)
	} else {
		existing := slices.AppendSeq(make([]*Entry, 0, min(len(w.names), goal.len)), w.entriesIn(goal))
		p.puts, absent = h.compareNames(w, existing, goal)
		allExist = len(existing) == len(w.names)
	}
	p.newer = p.puts
	var missing []string
	look := func(name string) {
		if _, brought := absent[name]; !brought && goal.get(name) == nil {
			missing = append(missing, name)
		}
	}
	if !allExist {
		for name := range w.names {
			look(name)
		}
	}
	for name := range h.notHeld {
		if _, named := w.names[name]; !named {
			look(name)
		}
	}
	p.reportAbsent(v, missing)
	p.adds = len(p.puts) > 0 || len(p.removed) > 0 || h.mustRespond
	if len(absent) > 0 && additionsOnly {
		p.client.removed = absent
	} else if len(absent) > 0 {
		p.removed, p.removes = slices.AppendSeq(p.removed, maps.Keys(absent)), true
	}
	slices.Sort(p.removed)
	return p
}

// bodies encodes the response: one body for SotW, one or more for delta.
func (p *responsePlan) bodies(v variant) []*body {
	switch {
	case p.content == contentState:
		return []*body{p.to.sotwBody()}
	case !v.delta:
		return []*body{sotwBodyOf(p.puts)}
	case v.onePerResponse:
		return p.oneByOne()
	case p.content == contentDiff && p.diff.entire:
		return p.goal.deltaBodiesAll()
	case p.content == contentDiff:
		return p.diff.deltas().wildcard
	case p.spans != nil:
		return p.diff.deltas().bodies(p.spans, p.removed)
	default:
		return p.goal.deltaBodiesOf(p.puts, p.removed)
	}
}

// oneByOne encodes the response in bodies of one resource each.
func (p *responsePlan) oneByOne() []*body {
	switch {
	case p.content == contentDiff:
		return p.diff.deltas().cut(1, []span{{0, len(p.diff.puts)}}, names(p.diff.removed))
	case p.spans != nil:
		return p.diff.deltas().cut(1, p.spans, p.removed)
	}
	return encodeRun(p.puts, formDelta).cut(1, []span{{0, len(p.puts)}}, p.removed)
}

// changed returns the entries that are new or newer to the client, in order of name.
func (p *responsePlan) changed() []*Entry {
	if p.content == contentList {
		return p.newer
	}
	return p.diff.puts
}

// moves says whether p changes a resource that the client has.
func (h *clientState) moves(p *responsePlan) bool {
	return slices.ContainsFunc(p.changed(), func(e *Entry) bool {
		version, isHeld := h.heldVersion(e.Name)
		return isHeld && version != e.Version
	})
}

// mentions says whether the response puts or removes name.
func (p *responsePlan) mentions(name string) bool {
	_, removed := slices.BinarySearch(p.removed, name)
	_, changed := slices.BinarySearchFunc(p.changed(), name, compareName)
	return removed || changed
}

func compareName(e *Entry, name string) int { return cmp.Compare(e.Name, name) }

func sortEntries(es []*Entry) {
	slices.SortFunc(es, func(a, b *Entry) int { return cmp.Compare(a.Name, b.Name) })
}
