package xds

import (
	"cmp"
	"maps"
	"slices"
)

// variant has the form of the responses of a type on a stream: differences, a part of the resources, or all of them.
type variant struct {
	delta          bool
	partial        bool // SotW: absence from a response is no removal
	onePerResponse bool // delta: a response has one resource
	noWildcard     bool // a wildcard matches no resource
	aliases        bool // delta: a missing name is reported by an alias
}

// inFull reports whether each response for these names has all resources.
func (v variant) inFull(w *subscriptionNames) bool { return !v.delta && (!v.partial || w.wildcard) }

// canRemove reports whether a response for these names can remove a resource.
func (v variant) canRemove(w *subscriptionNames) bool { return v.delta || v.inFull(w) }

// responsePlan is the next response to a client, and the state of the client after it.
type responsePlan struct {
	adds    bool // a resource is new or newer to the client, reported as missing, or requested
	removes bool // a resource of the client is removed
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

// planExtent says which changes a plan has.
type planExtent bool

const (
	allChanges    planExtent = false
	additionsOnly planExtent = true // it leads to the goal, and to all other entries of the client
)

func (p *responsePlan) due() bool { return p.adds || p.removes }

// plan returns the response that brings a client from its state to goal, for the wanted names. It changes neither
// client nor wanted.
func plan(
	mode variant, client *clientState, wanted *subscriptionNames, goal *state, extent planExtent,
) responsePlan {
	adding := extent == additionsOnly
	switch {
	case client.version != "" && client.version == goal.version && !goal.given && wanted.wildcard:
		return responsePlan{to: goal, client: clientState{state: goal}} // the client has it from an earlier stream
	case client.brought != nil:
		return planResumed(mode, client, wanted, goal, extent)
	case adding && !mode.delta && client.deletesGone(wanted, goal):
		return responsePlan{diff: noDiff}
	}
	response := responsePlan{to: goal, goal: goal, diff: noDiff}
	if wanted.wildcard || client.state != initialState { // else every wanted entry is new, and no difference is needed
		response.diff = goal.differenceFrom(client.state)
	}
	var absent map[string]string
	switch {
	case client.resendAll && wanted.wildcard:
		removed := response.diff.removed
		if adding { // the client has the named entries; it may lack the others
			var retained []*Entry
			retained, removed = client.split(wanted, removed)
			response.to = goal.withPuts(retained)
			absent = client.stillGone(goal, func(name string) bool { _, ok := wanted.names[name]; return ok })
		}
		response.diff = goal.differenceFrom(initialState).withRemoved(removed)
	case adding && mode.canRemove(wanted):
		response.to, response.diff = response.diff.additionsFirst(goal)
		if mode.delta {
			absent = client.stillGone(goal, wanted.includes)
		}
	}
	response.client = clientState{state: response.to, removed: absent, notHeld: client.stillAbsent(response.to, goal)}
	switch {
	case mode.delta && wanted.wildcard && !client.mentionAll &&
		len(client.removed)+len(client.notHeld)+len(client.resend) == 0:
		response.content = contentDiff
		response.adds = len(response.diff.puts) > 0
		response.removes = len(response.diff.removed) > 0
	case !mode.delta && wanted.wildcard:
		response.content = contentState
		response.removes = len(response.diff.removed) > 0
		isNewVersion := response.to == goal && response.to.version != client.state.version && !response.removes
		response.adds = len(response.diff.puts) > 0 || isNewVersion || !hasNoEntries(client.mandatory(goal))
	default:
		response.list(mode, client, wanted, goal)
	}
	response.adds = response.adds || client.mustRespond
	return response
}

// list fills in a response to a client that subscribes by name, or that lacks some names.
func (p *responsePlan) list(mode variant, client *clientState, wanted *subscriptionNames, goal *state) {
	p.listPuts(client, wanted, goal)
	p.newer = p.puts
	p.adds = len(p.puts) > 0
	if mode.canRemove(wanted) {
		for _, entry := range p.diff.removed {
			if !client.lacks(entry.Name) && wanted.includes(entry.Name) {
				p.removed = append(p.removed, entry.Name)
				p.removes = true
			}
		}
		for name := range client.removed {
			_, isRemoved := p.client.removed[name]
			if !isRemoved && !client.lacks(name) && wanted.includes(name) && goal.get(name) == nil {
				p.removed = append(p.removed, name)
				p.removes = true
			}
		}
	}
	if !mode.delta {
		p.removed = nil
		if mode.inFull(wanted) && (p.due() || client.mustRespond) {
			p.listAll(client, wanted, goal)
		}
		return
	}
	missing := p.missing(client, wanted, goal)
	p.adds = p.adds || len(missing) > 0
	p.reportAbsent(mode, missing)
	slices.Sort(p.removed)
}

// missing returns the requested names that do not exist.
func (p *responsePlan) missing(client *clientState, wanted *subscriptionNames, goal *state) (missing []string) {
	if client.mentionAll && (wanted.wildcard || len(p.puts) < len(wanted.names)) { // else every name exists
		for name := range wanted.names {
			if goal.get(name) == nil {
				missing = append(missing, name)
			}
		}
	}
	for name, sent := range client.notHeld {
		if _, named := wanted.names[name]; !bool(sent) && !(named && client.mentionAll) && goal.get(name) == nil {
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
		p.puts = slices.Clip(p.puts)
		p.spans = nil
		for _, name := range names {
			p.puts = append(p.puts, &Entry{Name: name, unknown: true})
		}
		sortEntries(p.puts)
	}
}

// A stream sends the shared encoding of a difference if it needs at least one entry in minSharedFraction.
const minSharedFraction = 16

// listPuts lists the changes that the client wants and the entries that must be sent, each name once.
func (p *responsePlan) listPuts(client *clientState, wanted *subscriptionNames, goal *state) {
	if client.state == initialState && !wanted.wildcard {
		p.puts = slices.AppendSeq(p.puts, wanted.entriesIn(goal))
		sortEntries(p.puts)
		return
	}
	for i, entry := range p.diff.puts {
		if client.mustSend(entry.Name) || !wanted.includes(entry.Name) {
			continue
		}
		if version, ok := client.removed[entry.Name]; ok && version == entry.Version && !client.resendAll { // it exists again
			continue
		}
		p.puts = append(p.puts, entry)
		if last := len(p.spans) - 1; last >= 0 && p.spans[last].end == i {
			p.spans[last].end++
		} else {
			p.spans = append(p.spans, span{i, i + 1})
		}
	}
	if len(client.removed)+len(client.notHeld)+len(client.resend) == 0 &&
		len(p.puts)*minSharedFraction >= len(p.diff.puts) {
		return
	}
	p.spans = nil
	p.puts = slices.AppendSeq(p.puts, client.mandatory(goal))
	sortEntries(p.puts)
}

// listAll lists all resources of a client that subscribes by name, as it has them after the response.
func (p *responsePlan) listAll(client *clientState, wanted *subscriptionNames, goal *state) {
	p.puts = make([]*Entry, 0, min(len(wanted.names), p.to.len+len(client.notHeld)))
	p.spans = nil
	if p.to == goal {
		p.puts = slices.AppendSeq(p.puts, wanted.entriesIn(goal))
	} else {
		for entry := range wanted.entriesIn(p.to) {
			if !client.lacks(entry.Name) {
				p.puts = append(p.puts, entry)
			}
		}
		for entry := range wanted.entriesIn(goal) {
			if client.lacks(entry.Name) {
				p.puts = append(p.puts, entry)
			}
		}
	}
	sortEntries(p.puts)
}

// stillAbsent returns the names of notHeld that only the interim state has, and not goal: the client does not get them.
func (c *clientState) stillAbsent(interim, goal *state) map[string]absenceSent {
	if interim == goal {
		return nil
	}
	var notHeld map[string]absenceSent
	for name := range c.notHeld {
		if goal.get(name) == nil && interim.get(name) != nil {
			put(&notHeld, name, true)
		}
	}
	return notHeld
}

// planResumed plans the first response to a client that sent its versions.
func planResumed(
	mode variant, client *clientState, wanted *subscriptionNames, goal *state, extent planExtent,
) responsePlan {
	response := responsePlan{to: goal, goal: goal, client: clientState{state: goal}, diff: noDiff}
	var absent map[string]string
	allExist := false
	if wanted.wildcard {
		response.puts, absent = client.compareAll(goal)
	} else {
		existing := slices.AppendSeq(make([]*Entry, 0, min(len(wanted.names), goal.len)), wanted.entriesIn(goal))
		response.puts, absent = client.compareNames(wanted, existing, goal)
		allExist = len(existing) == len(wanted.names)
	}
	response.newer = response.puts
	for name := range client.notHeld {
		delete(absent, name) // the client dropped it after it sent its versions: it is missing, and not removed later
	}
	var missing []string
	checkMissing := func(name string) {
		if _, brought := absent[name]; !brought && goal.get(name) == nil {
			missing = append(missing, name)
		}
	}
	if !allExist {
		for name := range wanted.names {
			checkMissing(name)
		}
	}
	for name := range client.notHeld {
		if _, named := wanted.names[name]; !named {
			checkMissing(name)
		}
	}
	response.reportAbsent(mode, missing)
	response.adds = len(response.puts) > 0 || len(response.removed) > 0 || client.mustRespond
	if len(absent) > 0 && extent == additionsOnly {
		response.client.removed = absent
	} else if len(absent) > 0 {
		response.removed = slices.AppendSeq(response.removed, maps.Keys(absent))
		response.removes = true
	}
	slices.Sort(response.removed)
	return response
}

// bodies encodes the response: one body for SotW, one or more for delta.
func (p *responsePlan) bodies(mode variant) []*body {
	switch {
	case p.content == contentState:
		return []*body{p.to.sotwBody()}
	case !mode.delta:
		return []*body{sotwBodyOf(p.puts)}
	case mode.onePerResponse:
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

// moves reports whether a response changes a resource that the client has.
func (c *clientState) moves(p *responsePlan) bool {
	return slices.ContainsFunc(p.changed(), func(e *Entry) bool {
		version, isHeld := c.heldVersion(e.Name)
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
