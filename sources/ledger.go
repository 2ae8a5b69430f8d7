package sources

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tidwall/btree"

	"tributary/memstore"
	"tributary/resource"
	"tributary/sources/guard"
	"tributary/sources/lastgood"
)

// ledger has the state of one source: the resources of each group, the candidate in force for each key, the quarantined
// objects, and all that is served although the source lacks it: last good versions, held losses and restored objects.
// It has no locks and does no I/O. The cost of a call grows with the changed groups, not with all groups.
// Unidentified rejects during a hold cost in proportion to the held losses.
type ledger struct {
	groups      map[string]*group
	quarantines map[string]*group // the groups with quarantined objects
	// winners has the resource in force for each key. contenders has, for each key of several groups, all candidates in
	// order of group: the first is the winner. A last good version wins only if no group has the key.
	winners        map[resource.Key]candidate
	contenders     map[resource.Key]*btree.BTreeG[candidate]
	groupsByReject map[resource.Key]*btree.BTreeG[*group] // the groups with a reject of a key, in order of name
	groupByTextID  map[string]*group                      // groups with rejects that may be any object, by textID
	guard          *guard.Guard                           // has the held losses
	incomplete     bool                                   // the state of an earlier run may lack newer versions

	winnerCounts     map[resource.Kind]int // winners by kind
	quarantinedCount int                   // quarantined objects of all groups
	repeatedCount    int                   // repeated resources of all groups
	warningCount     int                   // warnings of all groups
	foreignCount     int                   // ignored objects of other APIs, of all groups
	uncertainCount   int                   // last good versions kept for rejects that do not name them
}

// group is the state of one group. Its slices are never changed, only replaced, so that they may be read without the
// lock.
type group struct {
	*remarks  // noRemarks for most groups, to save memory
	name      string
	resources []*resource.Resource // by key, each once
	print     *lastgood.Print      // confirms it later; noPrint without one
	restored  bool                 // an earlier run, or other rules, found it valid
	outdated  bool                 // other settings of the source made it
}

// remarks have all about a group but its resources. ownRemarks makes a copy before a change.
type remarks struct {
	repeated      []*resource.Resource // resources with the key of another one of the group
	rejects       rejects
	lastGoodNamed map[resource.Key]bool // last good versions in force for its rejects: true if a reject names the key
	quarantine    []Quarantined
	warnings      []string
	unserved      []Unserved
	warned        map[resource.Key][]string // the warnings of validation
	excluded      []Excluded                // objects that the transforms exclude
	foreign       int                       // ignored objects of other APIs
	textID        string                    // see admitted.textID
	neverValid    int                       // see group.countNeverValid

	restrictingRejects int // rejects that may restrict traffic, at the last count of neverValid
	restrictingKept    int // kept policies, likewise
}

var (
	noRemarks = new(remarks)
	noPrint   = new(lastgood.Print)
)

func (g *group) ownRemarks() *remarks {
	remarks := *g.remarks
	g.remarks = &remarks
	return g.remarks
}

// isEmpty reports whether there are no remarks.
func (r *remarks) isEmpty() bool {
	rejects := len(r.rejects.keys) + len(r.rejects.keysWithoutKind) + len(r.quarantine)
	return len(r.repeated)+rejects+len(r.lastGoodNamed)+len(r.warnings)+len(r.excluded)+r.foreign+len(r.textID) == 0 &&
		!r.rejects.unidentified
}

type candidate struct {
	group            *group
	resource         *resource.Resource
	isLastGood       bool // a reject of the group keeps it in force
	namespaceChanged bool // it is a last good version, to which other settings gave another namespace
}

func newLedger(guard *guard.Guard) *ledger {
	return &ledger{
		guard:          guard,
		groups:         make(map[string]*group),
		quarantines:    make(map[string]*group),
		winners:        make(map[resource.Key]candidate),
		contenders:     make(map[resource.Key]*btree.BTreeG[candidate]),
		groupsByReject: make(map[resource.Key]*btree.BTreeG[*group]),
		groupByTextID:  make(map[string]*group),
		winnerCounts:   make(map[resource.Kind]int),
	}
}

// change has the effects of a call: the changes that a store must make, and the events for the log.
type change struct {
	guard.Commit

	quarantined []Quarantined // new, or with a new reason
	recovered   []Quarantined // no longer quarantined
	warnings    []string      // new ones
	duplicates  []Duplicate   // new ones

	holds  []guard.Event
	served []memstore.Change // the changes that the guard let through
}

// commit replaces the content of groups, which is valid, and returns the effects with the change of the table.
func (l *ledger) commit(contents []admitted, moment guard.Moment) (change, guard.Change) {
	change := l.replace(contents, moment.Now.UTC().Truncate(time.Second))
	if len(change.Puts)+len(change.Deletes)+len(change.Withdrawn) == 0 {
		return change, guard.Change{}
	}
	change.RemovalsObserved = !slices.ContainsFunc(contents, func(a admitted) bool { return !a.RemovalsObserved })
	return change, l.guard.Judge(moment, change.Commit)
}

// previousStates has the states that the keys of a call had before it, in the order of the call.
type previousStates struct {
	keys   []resource.Key
	states map[resource.Key]keyState
}

type keyState struct {
	winner    *resource.Resource // nil for none
	held      *resource.Resource // the object that the guard holds without a winner, or nil
	group     string             // of the winner or held object
	textID    string             // see admitted.textID
	restored  bool               // see group.restored
	outdated  bool               // see group.outdated
	contended bool
}

// replace replaces the content of groups, and returns the effects without those of the guard.
func (l *ledger) replace(contents []admitted, now time.Time) change {
	var change change
	n := 0
	for _, content := range contents {
		n += len(content.Resources)
	}
	before := &previousStates{states: make(map[resource.Key]keyState, n)}
	if len(l.groups) == 0 { // the first read: allocate the maps once
		l.groups = make(map[string]*group, len(contents))
		l.winners = make(map[resource.Key]candidate, n)
	}
	var suspects unidentifiedRejects
	for _, content := range contents {
		g := l.replaceGroup(content, now, before, &change)
		if content.Renamable {
			suspects.add(g)
		}
	}
	heldDeletions := sync.OnceValue(l.guard.HeldDeletions)
	for _, content := range contents {
		l.noteHeldLosses(content.Group, before, heldDeletions)
	}
	names := make(sameNameIndex)
	for _, key := range before.keys {
		previous := before.states[key]
		isOlder := false
		if _, ok := l.winners[key]; !ok {
			isOlder = l.restoreLastGood(key, previous, suspects, names)
		}
		if isOlder {
			change.Withdrawn = append(change.Withdrawn, key)
		}
		candidate, ok := l.winners[key]
		switch {
		case !ok && previous.winner != nil:
			if !isOlder {
				change.Deletes = append(change.Deletes, key)
			}
			if l.winnerCounts[key.Kind]--; l.winnerCounts[key.Kind] == 0 {
				delete(l.winnerCounts, key.Kind)
			}
		case ok && previous.winner == nil:
			change.Puts = append(change.Puts, candidate.resource)
			l.winnerCounts[key.Kind]++
		case ok && candidate.resource != previous.winner:
			change.Puts = append(change.Puts, candidate.resource)
		}
		if candidates := l.contenders[key]; candidates != nil && !previous.contended {
			second, _ := candidates.GetAt(1)
			change.duplicates = append(change.duplicates, newDuplicate(key, candidate.resource, second.resource))
		}
	}
	for _, content := range contents {
		if g := l.groups[content.Group]; g != nil {
			g.countNeverValid()
		}
	}
	l.fillServing(change.quarantined)
	return change
}

func (l *ledger) replaceGroup(content admitted, now time.Time, before *previousStates, change *change) *group {
	current := l.groups[content.Group]
	if current == nil {
		current = &group{name: content.Group, remarks: noRemarks}
	}
	old := *current
	current.ownRemarks()
	l.releaseLastGood(current, before)
	l.replaceRejects(current, content.Rejects)
	resources, repeated := split(content.Resources)
	current.repeated = repeated
	current.warnings = content.Warnings
	current.warned = content.warned
	current.excluded = content.excluded
	current.unserved = content.Unserved
	current.foreign = content.Foreign
	current.print = cmp.Or(content.print, noPrint)
	current.quarantine = quarantinedRejects(content, old.quarantine, now)
	current.resources = l.updateWinners(current, old.resources, resources, before)
	current.restored = false
	current.outdated = false
	if l.groupByTextID[old.textID] == current {
		delete(l.groupByTextID, old.textID)
	}
	if current.textID = content.textID(); current.textID != "" && l.groupByTextID[current.textID] == nil {
		l.groupByTextID[current.textID] = current
	}
	if current.isEmpty() {
		current.remarks = noRemarks
	}

	l.quarantinedCount += len(current.quarantine) - len(old.quarantine)
	l.repeatedCount += len(current.repeated) - len(old.repeated)
	l.warningCount += len(current.warnings) - len(old.warnings)
	l.foreignCount += current.foreign - old.foreign
	l.noteQuarantine(current)
	if len(current.resources)+len(current.quarantine)+len(current.warnings)+len(current.excluded)+current.foreign > 0 {
		l.groups[current.name] = current
	} else {
		delete(l.groups, current.name)
	}
	reasonOf := func(q Quarantined) any { return [2]any{q.Key(), q.Reason} }
	change.quarantined = append(change.quarantined, missingFrom(old.quarantine, current.quarantine, reasonOf)...)
	change.recovered = append(change.recovered, missingFrom(current.quarantine, old.quarantine, Quarantined.id)...)
	change.warnings = append(change.warnings,
		missingFrom(old.warnings, current.warnings, func(w string) string { return w })...)
	for _, r := range missingFrom(old.repeated, current.repeated, (*resource.Resource).Key) {
		first, _ := find(current.resources, r.Key())
		change.duplicates = append(change.duplicates, newDuplicate(r.Key(), first, r))
	}
	return current
}

// split orders resources by key, and separates repeated keys from the first resource of each key.
func split(resources []*resource.Resource) (first, repeated []*resource.Resource) {
	if !slices.IsSortedFunc(resources, compareKeys) {
		resources = slices.Clone(resources)
		slices.SortStableFunc(resources, compareKeys)
	}
	for i, object := range resources {
		if i > 0 && resources[i-1].Key() == object.Key() {
			if repeated == nil {
				first = slices.Clone(resources[:i])
			}
			repeated = append(repeated, object)
		} else if repeated != nil {
			first = append(first, object)
		}
	}
	if repeated == nil {
		first = resources
	}
	return first, repeated
}

// updateWinners replaces the old resources of a group by updated ones. It returns the updated ones, with the old
// pointer for each resource that did not change.
func (l *ledger) updateWinners(
	group *group, old, updated []*resource.Resource, before *previousStates,
) []*resource.Resource {
	resources := make([]*resource.Resource, 0, len(updated))
	i := 0
	for _, object := range updated {
		for i < len(old) && compareKeys(old[i], object) < 0 {
			l.removeCandidate(group, old[i].Key(), before)
			i++
		}
		if i < len(old) && old[i].Key() == object.Key() {
			previous := old[i]
			i++
			if !differs(previous, object) {
				resources = append(resources, previous)
				continue
			}
		}
		resources = append(resources, l.addCandidate(group, object, before))
	}
	for ; i < len(old); i++ {
		l.removeCandidate(group, old[i].Key(), before)
	}
	return resources
}

// addCandidate makes object the candidate of group for its key, and returns it.
func (l *ledger) addCandidate(group *group, object *resource.Resource, before *previousStates) *resource.Resource {
	key := object.Key()
	winner, isTaken := l.winners[key]
	candidates, contended := l.contenders[key]
	before.noteWinner(key, winner, contended)
	switch {
	case isTaken && winner.isLastGood: // a valid version replaces the last good one
		l.removeLastGood(winner.group, key)
		l.winners[key] = candidate{group: group, resource: object}
		return object
	case !isTaken, winner.group == group && !contended:
		l.winners[key] = candidate{group: group, resource: object}
		return object
	case !contended:
		candidates = ordered(func(a, b candidate) bool { return a.group.name < b.group.name })
		candidates.Set(winner)
		l.contenders[key] = candidates
	}
	candidates.Set(candidate{group: group, resource: object})
	l.winners[key], _ = candidates.Min()
	return object
}

// ordered returns an empty ordered set.
func ordered[T any](isBefore func(a, b T) bool) *btree.BTreeG[T] {
	return btree.NewBTreeGOptions(isBefore, btree.Options{NoLocks: true, Degree: 4}) // most sets have two elements
}

// removeCandidate removes the candidate of group for key.
func (l *ledger) removeCandidate(group *group, key resource.Key, before *previousStates) {
	candidates, contended := l.contenders[key]
	before.noteWinner(key, l.winners[key], contended)
	if !contended {
		delete(l.winners, key)
		return
	}
	candidates.Delete(candidate{group: group})
	l.winners[key], _ = candidates.Min()
	if candidates.Len() == 1 {
		delete(l.contenders, key)
	}
}

// noteWinner notes the state of a key, unless the call has noted it before.
func (p *previousStates) noteWinner(key resource.Key, winner candidate, contended bool) {
	previous := keyState{winner: winner.resource, contended: contended}
	if winner.group != nil {
		previous.group = winner.group.name
		previous.restored = winner.group.restored
		previous.textID = winner.group.textID
		previous.outdated = winner.group.outdated || winner.namespaceChanged
	}
	p.note(key, previous)
}

func (p *previousStates) note(key resource.Key, previous keyState) {
	if _, noted := p.states[key]; !noted {
		p.states[key] = previous
		p.keys = append(p.keys, key)
	}
}

// markOutdated marks all groups as made by other settings of the source, which is about to be read again.
func (l *ledger) markOutdated() {
	l.guard.Reread()
	for _, g := range l.groups {
		g.restored = true
		g.outdated = true
		g.print = noPrint
	}
}

// excluding returns the excluded objects with a key of the source.
func (l *ledger) excluding(key resource.Key) (excluded []Excluded) {
	for _, name := range l.groupNames() {
		for _, e := range l.groups[name].excluded {
			if e.Key == key {
				excluded = append(excluded, e)
			}
		}
	}
	return excluded
}

// groupNames returns the names of the groups in order.
func (l *ledger) groupNames() []string { return slices.Sorted(maps.Keys(l.groups)) }

// noteQuarantine updates quarantines for a group.
func (l *ledger) noteQuarantine(group *group) {
	if len(group.quarantine) > 0 {
		l.quarantines[group.name] = group
	} else {
		delete(l.quarantines, group.name)
	}
}

// quarantineList returns all quarantined objects, by group.
func (l *ledger) quarantineList() []Quarantined {
	if l.quarantinedCount == 0 {
		return nil
	}
	quarantine := make([]Quarantined, 0, l.quarantinedCount)
	for _, g := range l.quarantines {
		quarantine = append(quarantine, g.quarantine...)
	}
	slices.SortStableFunc(quarantine, func(a, b Quarantined) int { return cmp.Compare(a.Group, b.Group) })
	l.fillServing(quarantine)
	return quarantine
}

// warningList returns all warnings, by group.
func (l *ledger) warningList() []string {
	if l.warningCount == 0 {
		return nil
	}
	warnings := make([]string, 0, l.warningCount)
	for _, name := range l.groupNames() {
		warnings = append(warnings, l.groups[name].warnings...)
	}
	return warnings
}

// unservedList returns all unserved parts of objects.
func (l *ledger) unservedList() (parts []Unserved) {
	for _, name := range l.groupNames() {
		parts = append(parts, l.groups[name].unserved...)
	}
	return parts
}

// duplicateList returns the keys that occur more than once, by key.
func (l *ledger) duplicateList() []Duplicate {
	if len(l.contenders) == 0 && l.repeatedCount == 0 {
		return nil
	}
	losers := make(map[resource.Key][]string)
	for key, candidates := range l.contenders {
		candidates.Scan(func(c candidate) bool {
			if c.group != l.winners[key].group {
				losers[key] = append(losers[key], c.resource.Origin().Place)
			}
			return true
		})
	}
	if l.repeatedCount > 0 {
		for _, name := range l.groupNames() {
			for _, r := range l.groups[name].repeated {
				losers[r.Key()] = append(losers[r.Key()], r.Origin().Place)
			}
		}
	}
	duplicates := make([]Duplicate, 0, len(losers))
	for key, places := range losers {
		c := newDuplicate(key, l.winners[key].resource)
		c.Losers = places
		duplicates = append(duplicates, c)
	}
	slices.SortFunc(duplicates, func(a, b Duplicate) int { return a.Key().Compare(b.Key()) })
	return duplicates
}

// countDuplicates counts the resources that lost their key to another.
func (l *ledger) countDuplicates() int {
	n := l.repeatedCount
	for _, candidates := range l.contenders {
		n += candidates.Len() - 1
	}
	return n
}

func compareKeys(a, b *resource.Resource) int { return a.Key().Compare(b.Key()) }

// differs reports whether two resources differ in content or origin.
func differs(a, b *resource.Resource) bool {
	return a != b && (!resource.Equal(a, b) || !resource.SameOrigin(a, b))
}

func find(objects []*resource.Resource, key resource.Key) (*resource.Resource, bool) {
	i, ok := slices.BinarySearchFunc(objects, key,
		func(r *resource.Resource, k resource.Key) int { return r.Key().Compare(k) })
	if !ok {
		return nil, false
	}
	return objects[i], true
}

// newDuplicate returns the duplicate of resources with one key.
func newDuplicate(key resource.Key, winner *resource.Resource, losers ...*resource.Resource) Duplicate {
	duplicate := Duplicate{Ref: resource.Ref(key), Winner: winner.Origin().Place}
	for _, r := range losers {
		duplicate.Losers = append(duplicate.Losers, r.Origin().Place)
	}
	return duplicate
}

// missingFrom returns the elements of list that former lacks, compared by id.
func missingFrom[T any, K comparable](former, list []T, id func(T) K) []T {
	if len(list) == 0 {
		return nil
	}
	formerIDs := make(map[K]bool, len(former))
	for _, x := range former {
		formerIDs[id(x)] = true
	}
	var missing []T
	for _, x := range list {
		if !formerIDs[id(x)] {
			missing = append(missing, x)
		}
	}
	return missing
}
