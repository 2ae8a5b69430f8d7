package sources

import (
	"cmp"
	"slices"
	"time"

	"tributary/resource"
)

// This file decides which last good versions are served instead of rejects. A last good version belongs to a source and
// a key, not to a group. It is served while no group has a valid version of the key and a reject of any group may be a
// new version.

// withoutKind returns the part of a key that identifies the object of a reject with a mistyped kind.
func withoutKind(key resource.Key) resource.Key {
	return resource.Key{Namespace: key.Namespace, Name: key.Name}
}

// withoutNamespace returns the part of a key that is independent of the namespace.
func withoutNamespace(key resource.Key) resource.Key {
	return resource.Key{Kind: key.Kind, Name: key.Name}
}

// sameNameIndex has the kinds and names of the objects of groups. A group is indexed when it is first needed.
type sameNameIndex map[*group]map[resource.Key]bool

// hasName reports whether a group has or excludes an object of this kind and name in any namespace.
func (s sameNameIndex) hasName(group *group, key resource.Key) bool {
	names, ok := s[group]
	if !ok {
		names = make(map[resource.Key]bool, len(group.resources))
		for _, r := range group.resources {
			names[withoutNamespace(r.Key())] = true
		}
		for _, e := range group.excluded {
			names[withoutNamespace(e.Key)] = true
		}
		s[group] = names
	}
	return names[withoutNamespace(key)]
}

// rejects are the rejects of a group, indexed by the objects that they may be a version of.
type rejects struct {
	keys                 map[resource.Key]bool // of identified objects
	keysWithoutNamespace map[resource.Key]bool // of identified objects, in any namespace
	keysWithoutKind      map[resource.Key]bool // of mistyped kinds
	unidentified         bool                  // at least one may be any object
}

func indexRejects(rejects []Reject) (index rejects) {
	for _, reject := range rejects {
		switch {
		case reject.Foreign:
		case reject.hasNoName():
			index.unidentified = true
		case reject.isIdentified():
			if index.keys == nil {
				index.keys, index.keysWithoutNamespace = make(map[resource.Key]bool), make(map[resource.Key]bool)
			}
			index.keys[reject.Key] = true
			index.keysWithoutNamespace[withoutNamespace(reject.Key)] = true
		default:
			if index.keysWithoutKind == nil {
				index.keysWithoutKind = make(map[resource.Key]bool)
			}
			index.keysWithoutKind[withoutKind(reject.Key)] = true
		}
	}
	return index
}

// mayInclude reports whether an unidentified reject may be a version of key.
func (rs rejects) mayInclude(key resource.Key) bool {
	return rs.unidentified || rs.keysWithoutKind[withoutKind(key)]
}

// replaceRejects replaces the rejects of a group.
func (l *ledger) replaceRejects(current *group, rejects []Reject) {
	for key := range current.rejects.keys {
		if rejecting := l.groupsByReject[key]; rejecting.Len() == 1 {
			delete(l.groupsByReject, key)
		} else {
			rejecting.Delete(current)
		}
	}
	current.rejects = indexRejects(rejects)
	for key := range current.rejects.keys {
		rejecting := l.groupsByReject[key]
		if rejecting == nil {
			rejecting = ordered(func(a, b *group) bool { return a.name < b.name })
			l.groupsByReject[key] = rejecting
		}
		rejecting.Set(current)
	}
}

// releaseLastGood removes the last good versions that group keeps for its rejects, before group gets other rejects.
func (l *ledger) releaseLastGood(group *group, before *previousStates) {
	for key := range group.lastGoodNamed {
		before.noteWinner(key, l.winners[key], false)
		delete(l.winners, key)
		l.removeLastGood(group, key)
	}
	group.lastGoodNamed = nil
}

func (l *ledger) removeLastGood(group *group, key resource.Key) {
	if isNamed, keeps := group.lastGoodNamed[key]; keeps && !isNamed {
		l.uncertainCount--
	}
	delete(group.lastGoodNamed, key)
}

// unidentifiedRejects are the groups of a call with unidentified rejects. An object that another group loses in the
// same call may have been renamed or moved there.
type unidentifiedRejects struct {
	first  *group                  // the first with a reject that may be any object
	byName map[resource.Key]*group // the first with a reject of a mistyped kind
}

func (u *unidentifiedRejects) add(current *group) {
	if current.rejects.unidentified && u.first == nil {
		u.first = current
	}
	for name := range current.rejects.keysWithoutKind {
		if u.byName == nil {
			u.byName = make(map[resource.Key]*group)
		}
		if u.byName[name] == nil {
			u.byName[name] = current
		}
	}
}

func (u *unidentifiedRejects) groupFor(key resource.Key) *group {
	if group := u.byName[withoutKind(key)]; group != nil {
		return group
	}
	return u.first
}

// noteHeldLosses notes objects that the source lost and the guard holds, if a reject of the group may be a version of
// them. heldDeletions are the deletions that the guard holds.
func (l *ledger) noteHeldLosses(
	group string, before *previousStates, heldDeletions func() map[string][]*resource.Resource,
) {
	current := l.groups[group]
	if current == nil {
		return
	}
	note := func(r *resource.Resource) {
		if _, isServed := l.winners[r.Key()]; !isServed {
			before.note(r.Key(), keyState{held: r, group: r.Origin().Group})
		}
	}
	for key := range current.rejects.keys {
		if r := l.guard.HeldDeletion(key); r != nil {
			note(r)
		}
	}
	if !current.rejects.unidentified && len(current.rejects.keysWithoutKind) == 0 {
		return
	}
	for _, r := range heldDeletions()[group] {
		if current.rejects.mayInclude(r.Key()) {
			note(r)
		}
	}
}

// restoreLastGood serves the last good version of a key that no group has any longer, if a reject may be a new version.
// It reports whether the served version may be older than the last good one, and allow requests that the last good one
// denies.
func (l *ledger) restoreLastGood(
	key resource.Key, previous keyState, suspects unidentifiedRejects, names sameNameIndex,
) (isOlder bool) {
	object := cmp.Or(previous.winner, previous.held)
	if object == nil {
		return false
	}
	keeper, isNamed := l.replacementFor(key, previous, suspects, names)
	if keeper == nil {
		return false
	}
	fromEarlierRun := previous.restored || previous.held != nil // a held object may be from an earlier run
	if isNamed && fromEarlierRun && l.incomplete && slices.Contains(resource.SecurityKinds, key.Kind) {
		return true
	}
	if !isNamed {
		l.uncertainCount++
	}
	if o := object.Origin(); o.Group != keeper.name { // for the next restart
		o.Group = keeper.name
		object = object.WithOrigin(o)
	}
	if keeper.lastGoodNamed == nil {
		keeper.ownRemarks().lastGoodNamed = make(map[resource.Key]bool)
	}
	keeper.lastGoodNamed[key] = isNamed
	// A reject in another namespace keeps it. After a restart, the next call has to know that.
	moved := previous.outdated ||
		previous.restored && !isNamed && keeper.rejects.keysWithoutNamespace[withoutNamespace(key)]
	l.winners[key] = candidate{group: keeper, resource: object, isLastGood: true, namespaceChanged: moved}
	return false
}

// replacementFor returns the group with a reject that may be a new version of key, or nil, and whether the reject names
// the key. Other settings of the source may have given the object another namespace: then a reject counts in any
// namespace, unless the group now has or excludes an object of this kind and name. After a restart, the settings that
// made an object are unknown.
func (l *ledger) replacementFor(
	key resource.Key, previous keyState, suspects unidentifiedRejects, names sameNameIndex,
) (keeper *group, isNamed bool) {
	if rejecting := l.groupsByReject[key]; rejecting != nil {
		first, _ := rejecting.Min()
		return first, true
	}
	if group := l.groups[previous.group]; group != nil {
		if previous.outdated && names.hasName(group, key) {
			return nil, false
		}
		anyNamespace := previous.outdated || previous.restored
		if group.rejects.mayInclude(key) || anyNamespace && group.rejects.keysWithoutNamespace[withoutNamespace(key)] {
			return group, false
		}
	}
	if previous.restored { // after a restart, a group has the object only if it is the same text under another name
		if g := l.groupByTextID[previous.textID]; previous.textID != "" && g != nil && g.rejects.mayInclude(key) {
			return g, false
		}
		return nil, false
	}
	return suspects.groupFor(key), false
}

// quarantinedRejects lists the rejects of content. Objects that were quarantined before keep their time.
func quarantinedRejects(content admitted, quarantine []Quarantined, now time.Time) []Quarantined {
	if len(content.Rejects) == 0 {
		return nil
	}
	firstTimes := make(map[resource.Key]time.Time, len(quarantine))
	for _, q := range quarantine {
		if t, ok := firstTimes[q.Key()]; !ok || q.Since.Before(t) {
			firstTimes[q.Key()] = q.Since
		}
	}
	list := make([]Quarantined, 0, len(content.Rejects))
	for _, reject := range content.Rejects {
		quarantined := Quarantined{
			Ref: resource.Ref(reject.Key), Group: content.Group, Place: reject.Origin.Place, Reason: reject.Err.Error(),
			Since:   now,
			foreign: reject.Foreign, derives: reject.Derives, LastGoodServes: reject.LastGood,
			mayRestrict: reject.MayRestrict && !reject.isIdentified(),
		}
		if t, ok := firstTimes[reject.Key]; ok {
			quarantined.Since = t
		}
		list = append(list, quarantined)
	}
	return list
}

// maxKeptNames is the number of named objects that a reject keeps in force.
const maxKeptNames = 10

// fillServing adds the objects in force to quarantined objects, which are ordered by group.
func (l *ledger) fillServing(quarantine []Quarantined) {
	var group *group
	var uncertain keptNames
	var byName map[resource.Key]keptNames
	for i := range quarantine {
		quarantined := &quarantine[i]
		if next := l.groups[quarantined.Group]; next != group {
			group, byName = next, nil
		}
		reject := Reject{Key: quarantined.Key()}
		switch {
		case group == nil || quarantined.foreign:
		case reject.isIdentified():
			quarantined.LastGoodServes = l.winners[quarantined.Key()].isLastGood
		case len(group.lastGoodNamed) == 0:
		default:
			if byName == nil { // the rejects of a group share the lists
				uncertain, byName = group.uncertainKept()
			}
			keptList := uncertain
			if !reject.hasNoName() {
				keptList = byName[withoutKind(quarantined.Key())]
			}
			quarantined.Keeps, quarantined.KeepsMore = keptList.names, keptList.unlisted
		}
	}
}

// keptNames are the names of objects that a reject keeps in force.
type keptNames struct {
	names    []string
	unlisted int
}

// uncertainKept lists the objects that the group keeps for unidentified rejects: all of them, and by withoutKind.
func (g *group) uncertainKept() (uncertain keptNames, byName map[resource.Key]keptNames) {
	keys := make([]resource.Key, 0, len(g.lastGoodNamed))
	for key, isNamed := range g.lastGoodNamed {
		if !isNamed {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, resource.Key.Compare)
	byName = make(map[resource.Key]keptNames)
	enter := func(shown keptNames, key resource.Key) keptNames {
		if len(shown.names) == maxKeptNames {
			shown.unlisted++
			return shown
		}
		return keptNames{append(shown.names, key.String()), shown.unlisted}
	}
	for _, key := range keys {
		uncertain = enter(uncertain, key)
		if name := withoutKind(key); g.rejects.keysWithoutKind[name] {
			byName[name] = enter(byName[name], key)
		}
	}
	return uncertain, byName
}

// whyKept returns the first unidentified rejects that keep a key in force.
func (l *ledger) whyKept(key resource.Key) (quarantine []Quarantined) {
	const enough = 5
	candidate := l.winners[key]
	if !candidate.isLastGood || candidate.group.lastGoodNamed[key] {
		return nil
	}
	for _, quarantined := range candidate.group.quarantine {
		r := Reject{Key: quarantined.Key(), Foreign: quarantined.foreign}
		if r.hasNoName() || !r.isIdentified() && withoutKind(quarantined.Key()) == withoutKind(key) {
			if quarantine = append(quarantine, quarantined); len(quarantine) == enough {
				break
			}
		}
	}
	l.fillServing(quarantine)
	return quarantine
}
