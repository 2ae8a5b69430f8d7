package sources

import (
	"cmp"
	"slices"
	"time"

	"tributary/resource"
)

// What follows decides which last good versions stand in for what was rejected. A last good version is that of the source
// for its key, and not of a group: it is in force as long as no group has a valid version and some reject may be what has
// become of it, wherever that turned up. A key that a group has is never in need of one.

// namesake is the part of a key by which a reject of a kind that does not exist may be an object all the same.
func namesake(key resource.Key) resource.Key {
	return resource.Key{Namespace: key.Namespace, Name: key.Name}
}

// rejects are those of a group, by what may have become of an object.
type rejects struct {
	keys      map[resource.Key]bool // those that can be told
	namesakes map[resource.Key]bool // of whichever kind
	anonymous bool                  // any object may be meant
}

func sortOut(all []Reject) (rs rejects) {
	for _, r := range all {
		switch {
		case r.Foreign:
		case r.anonymous():
			rs.anonymous = true
		case r.identified():
			if rs.keys == nil {
				rs.keys = make(map[resource.Key]bool)
			}
			rs.keys[r.Key] = true
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
		l.rejecting[key] = slices.DeleteFunc(l.rejecting[key], func(o *group) bool { return o == g })
		if len(l.rejecting[key]) == 0 {
			delete(l.rejecting, key)
		}
	}
	g.rejects = sortOut(all)
	for key := range g.rejects.keys {
		at, _ := slices.BinarySearchFunc(l.rejecting[key], g.name, func(o *group, name string) int { return cmp.Compare(o.name, name) })
		l.rejecting[key] = slices.Insert(l.rejecting[key], at, g)
	}
}

// letGo forgets what g keeps for its rejects, which are to be others.
func (l *ledger) letGo(g *group, before *touched) {
	for key := range g.keeps {
		before.touch(key, l.winners[key], false)
		delete(l.winners, key)
	}
	g.keeps = nil
}

// stand puts the last good version of a key that no group has any longer in force, if a reject may be what has become of
// it. fresh are the groups that are new with this change and may have had another name: what such a group
// rejects, and of which it cannot be told what it is, may be what another group had.
func (l *ledger) stand(key resource.Key, was standing, fresh []*group) {
	by, sure := l.standIn(key, was, fresh)
	if by == nil {
		return
	}
	r := was.winner
	if o := r.Origin(); o.Group != by.name { // so that it is found there after a restart
		o.Group = by.name
		r = r.WithOrigin(o)
	}
	if by.keeps == nil {
		by.keeps = make(map[resource.Key]bool)
	}
	by.keeps[key] = sure
	l.winners[key] = candidate{group: by, resource: r, kept: true}
}

func (l *ledger) standIn(key resource.Key, was standing, fresh []*group) (by *group, sure bool) {
	if all := l.rejecting[key]; len(all) > 0 {
		return all[0], true
	}
	if g := l.groups[was.group.name]; g != nil && g.rejects.mayBe(key) {
		return g, false
	}
	if was.restored {
		return nil, false // who was there before the restart is not known to be new
	}
	for _, g := range fresh {
		if g.rejects.mayBe(key) {
			return g, false
		}
	}
	return nil, false
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
			Kind: r.Key.Kind, Namespace: r.Key.Namespace, Name: r.Key.Name,
			Group: content.Group, Place: r.Origin.Place, Reason: r.Err.Error(), Since: now, foreign: r.Foreign,
		}
		if t, ok := since[r.Key]; ok {
			q.Since = t
		}
		qs = append(qs, q)
	}
	return qs
}

// told returns q with what is in force in its place. That changes with what other groups have.
func (l *ledger) told(q Quarantined) Quarantined {
	g := l.groups[q.Group]
	if g == nil || q.foreign {
		return q
	}
	r := Reject{Key: q.Key()}
	if r.identified() {
		w := l.winners[q.Key()]
		q.LastGoodServes = w.kept
		return q
	}
	for key, sure := range g.keeps {
		if !sure && (r.anonymous() || namesake(key) == namesake(q.Key())) {
			q.Keeps = append(q.Keeps, key.String())
		}
	}
	slices.Sort(q.Keeps)
	return q
}
