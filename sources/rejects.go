package sources

import (
	"cmp"
	"slices"
	"time"

	"tributary/resource"
)

// This file decides which last good versions are served in the place of rejects. A last good version belongs to a source and a key, not to
// a group. It is served while no group has a valid version of the key and some reject may be a new version of it, in whatever group.

// namesake is the part of a key by which a reject of a kind that does not exist may be an object all the same.
func namesake(key resource.Key) resource.Key {
	return resource.Key{Namespace: key.Namespace, Name: key.Name}
}

// relative is the part of a key that is the same in whatever namespace an object is.
func relative(key resource.Key) resource.Key {
	return resource.Key{Kind: key.Kind, Name: key.Name}
}

// sameNameIndex has the kind and name of the objects of groups, without the namespace. A group is entered when it is first asked for.
type sameNameIndex map[*group]map[resource.Key]bool

// has reports whether a group has an object of this kind and name in whatever namespace, or leaves one out.
func (k sameNameIndex) has(g *group, key resource.Key) bool {
	known, ok := k[g]
	if !ok {
		known = make(map[resource.Key]bool, len(g.has))
		for _, r := range g.has {
			known[relative(r.Key())] = true
		}
		for _, e := range g.excluded {
			known[relative(e.Key)] = true
		}
		k[g] = known
	}
	return known[relative(key)]
}

// rejects are those of a group, by what may have become of an object.
type rejects struct {
	keys      map[resource.Key]bool // those that can be told
	relatives map[resource.Key]bool // the same, in whatever namespace
	namesakes map[resource.Key]bool // of whichever kind
	anonymous bool                  // any object may be meant
}

func indexRejects(all []Reject) (rs rejects) {
	for _, r := range all {
		switch {
		case r.Foreign:
		case r.anonymous():
			rs.anonymous = true
		case r.identified():
			if rs.keys == nil {
				rs.keys, rs.relatives = make(map[resource.Key]bool), make(map[resource.Key]bool)
			}
			rs.keys[r.Key] = true
			rs.relatives[relative(r.Key)] = true
		default:
			if rs.namesakes == nil {
				rs.namesakes = make(map[resource.Key]bool)
			}
			rs.namesakes[namesake(r.Key)] = true
		}
	}
	return rs
}

// mayBe reports whether one of those of which it cannot be told what they are may be key.
func (rs rejects) mayBe(key resource.Key) bool { return rs.anonymous || rs.namesakes[namesake(key)] }

// reject enters the rejects of g in the place of those it had.
func (l *ledger) reject(g *group, all []Reject) {
	for key := range g.rejects.keys {
		if of := l.rejecting[key]; of.Len() == 1 {
			delete(l.rejecting, key)
		} else {
			of.Delete(g)
		}
	}
	g.rejects = indexRejects(all)
	for key := range g.rejects.keys {
		of := l.rejecting[key]
		if of == nil {
			of = ordered(func(a, b *group) bool { return a.name < b.name })
			l.rejecting[key] = of
		}
		of.Set(g)
	}
}

// releaseKept forgets the last good versions that g keeps in the place of its rejects, before g gets other rejects.
func (l *ledger) releaseKept(g *group, before *touched) {
	for key := range g.keeps {
		before.noteWinner(key, l.winners[key], false)
		delete(l.winners, key)
		l.unkeep(g, key)
	}
	g.keeps = nil
}

func (l *ledger) unkeep(g *group, key resource.Key) {
	if sure, keeps := g.keeps[key]; keeps && !sure {
		l.unsure--
	}
	delete(g.keeps, key)
}

// suspects are the groups of a call with rejects that cannot be identified. An object that another group loses in the same call may have
// been renamed or moved there.
type suspects struct {
	any       *group                  // the first in which any object may be
	namesakes map[resource.Key]*group // the same of one name
}

func (s *suspects) add(g *group) {
	if g.rejects.anonymous && s.any == nil {
		s.any = g
	}
	for name := range g.rejects.namesakes {
		if s.namesakes == nil {
			s.namesakes = make(map[resource.Key]*group)
		}
		if s.namesakes[name] == nil {
			s.namesakes[name] = g
		}
	}
}

func (s *suspects) of(key resource.Key) *group {
	if g := s.namesakes[namesake(key)]; g != nil {
		return g
	}
	return s.any
}

// noteHeld finds objects that the guard holds, though the source reported them gone, and that a reject of the group may be a version of.
func (l *ledger) noteHeld(group string, before *touched) {
	g := l.groups[group]
	if g == nil {
		return
	}
	note := func(r *resource.Resource) {
		if _, has := l.winners[r.Key()]; !has {
			before.note(r.Key(), keyState{held: r, group: r.Origin().Group})
		}
	}
	for key := range g.rejects.keys {
		if r := l.held.Gone(key); r != nil {
			note(r)
		}
	}
	if !g.rejects.anonymous && len(g.rejects.namesakes) == 0 {
		return
	}
	for _, r := range l.held.GoneFrom(group) {
		if g.rejects.mayBe(r.Key()) {
			note(r)
		}
	}
}

// restoreLastGood serves the last good version of a key that no group has any longer, if a reject may be a new version of it. It reports
// whether what is served may be older than the last good version, and let pass what that denies.
func (l *ledger) restoreLastGood(key resource.Key, was keyState, may suspects, now sameNameIndex) (older bool) {
	r := cmp.Or(was.winner, was.held)
	if r == nil {
		return false
	}
	by, sure := l.replacementFor(key, was, may, now)
	if by == nil {
		return false
	}
	left := was.restored || was.held != nil // by an earlier run, or it may be
	if sure && left && l.incomplete && slices.Contains(resource.SecurityKinds, key.Kind) {
		return true
	}
	if !sure {
		l.unsure++
	}
	if o := r.Origin(); o.Group != by.name { // so that it is found there after a restart
		o.Group = by.name
		r = r.WithOrigin(o)
	}
	if by.keeps == nil {
		by.remark().keeps = make(map[resource.Key]bool)
	}
	by.keeps[key] = sure
	// What a restart had it forget it knows again: a reject in another namespace is why it stands, and is still there the next time.
	moved := was.outdated || was.restored && !sure && by.rejects.relatives[relative(key)]
	l.winners[key] = candidate{group: by, resource: r, kept: true, moved: moved}
	return false
}

// replacementFor returns the group with a reject that is a new version of key, and whether that is sure; nil if there is none. Other
// settings of the source may have given the object another namespace: then a reject counts in whatever namespace, unless the group now has
// or leaves out an object of this kind and name. After a restart it is not known by which settings an object was made.
func (l *ledger) replacementFor(key resource.Key, was keyState, may suspects, now sameNameIndex) (by *group, sure bool) {
	if of := l.rejecting[key]; of != nil {
		first, _ := of.Min()
		return first, true
	}
	if g := l.groups[was.group]; g != nil {
		if was.outdated && now.has(g, key) {
			return nil, false
		}
		if g.rejects.mayBe(key) || (was.outdated || was.restored) && g.rejects.relatives[relative(key)] {
			return g, false
		}
	}
	if was.restored { // who was there before the restart is not known to be new, unless it is the same text by another name
		if g := l.unclear[was.unclear]; was.unclear != "" && g != nil && g.rejects.mayBe(key) {
			return g, false
		}
		return nil, false
	}
	return may.of(key), false
}

// quarantine lists the rejects of content. One that was there before keeps its time.
func quarantine(content admitted, old []Quarantined, now time.Time) []Quarantined {
	if len(content.Rejects) == 0 {
		return nil
	}
	since := make(map[resource.Key]time.Time, len(old))
	for _, q := range old {
		if t, ok := since[q.Key()]; !ok || q.Since.Before(t) {
			since[q.Key()] = q.Since
		}
	}
	qs := make([]Quarantined, 0, len(content.Rejects))
	for _, r := range content.Rejects {
		q := Quarantined{
			Ref: resource.Ref(r.Key), Group: content.Group, Place: r.Origin.Place, Reason: r.Err.Error(), Since: now, foreign: r.Foreign,
			derives: r.Derives, LastGoodServes: r.LastGood, mayRestrict: r.MayRestrict && !r.identified(),
		}
		if t, ok := since[r.Key]; ok {
			q.Since = t
		}
		qs = append(qs, q)
	}
	return qs
}

// listed is how many of the objects that something keeps are named.
const listed = 10

// describeServing completes qs, which stand by group, with what is in force in their place. That changes with what other groups have.
func (l *ledger) describeServing(qs []Quarantined) {
	var g *group
	var any kept
	var named map[resource.Key]kept
	for i := range qs {
		q := &qs[i]
		if of := l.groups[q.Group]; of != g {
			g, named = of, nil
		}
		r := Reject{Key: q.Key()}
		switch {
		case g == nil || q.foreign:
		case r.identified():
			q.LastGoodServes = l.winners[q.Key()].kept
		case len(g.keeps) == 0:
		default:
			if named == nil { // once a group: all its rejects share the lists
				any, named = g.keptUnsure()
			}
			of := any
			if !r.anonymous() {
				of = named[namesake(q.Key())]
			}
			q.Keeps, q.KeepsMore = of.names, of.more
		}
	}
}

// kept names objects.
type kept struct {
	names []string
	more  int
}

// keptUnsure lists what g keeps without being sure that it is meant, and the same by namesake.
func (g *group) keptUnsure() (any kept, named map[resource.Key]kept) {
	keys := make([]resource.Key, 0, len(g.keeps))
	for key, sure := range g.keeps {
		if !sure {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, resource.Key.Compare)
	named = make(map[resource.Key]kept)
	enter := func(k kept, key resource.Key) kept {
		if len(k.names) == listed {
			k.more++
			return k
		}
		return kept{append(k.names, key.String()), k.more}
	}
	for _, key := range keys {
		any = enter(any, key)
		if name := namesake(key); g.rejects.namesakes[name] {
			named[name] = enter(named[name], key)
		}
	}
	return any, named
}

// keeping returns the first of what keeps a key in force of which it is not sure that it is meant.
func (l *ledger) keeping(key resource.Key) (qs []Quarantined) {
	const enough = 5
	w := l.winners[key]
	if !w.kept || w.group.keeps[key] {
		return nil
	}
	for _, q := range w.group.quarantine {
		r := Reject{Key: q.Key(), Foreign: q.foreign}
		if r.anonymous() || !r.identified() && namesake(q.Key()) == namesake(key) {
			if qs = append(qs, q); len(qs) == enough {
				break
			}
		}
	}
	l.describeServing(qs)
	return qs
}
