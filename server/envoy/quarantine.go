package envoy

import (
	"cmp"
	"container/list"
	"maps"
	"slices"
	"time"

	"tributary/resource"
)

// An object that makes Envoys reject what they are sent is set aside: an earlier version of it is translated in its place, for everybody or for the
// clients of one profile, until it changes. So all that is made of several objects is made as ever, and nothing of what is served has to be kept.

const (
	maxTrials  = 1000 // objects of which it is known what they were before they changed
	maxEarlier = 8    // versions of each
	// settled is after what time a version that nobody has rejected is a good one. What was before is forgotten then.
	settled = time.Minute
)

// trial is an object that has changed.
type trial struct {
	key     resource.Key
	now     *resource.Resource
	earlier []*resource.Resource // what it was before, the newest first, and the last one a good one; nil if it was not there
	turn    uint64               // of the change
	since   time.Time            // the change
	hearing int                  // how many hearings have recalled it
}

// aside is a version of an object that is not translated, and what is in its place.
type aside struct {
	*trial
	depth int          // which of the earlier ones; after the last it is left out
	why   *Quarantined // nil for one that is only suspected
}

// Quarantined is an object that Envoys reject.
type Quarantined struct {
	Key       resource.Key
	Version   string // that is rejected
	Serves    string // the version that is served in its place; empty if the object is left out
	Only      string // the clients for whom that is, if it is not for all
	Origin    resource.Origin
	Since     time.Time
	TypeURL   string   // of what was rejected
	Resources []string // what was rejected, as far as is known
	Error     string   // as the client put it
	Node      string   // of the client
	Peer      string
	host      string
	of        reach
}

// reach is for whom an object is set aside: the clients of a profile, by its id, or everybody.
type reach string

const everybody reach = ""

// serves returns what is translated in place of the object, or nil if it is left out.
func (a *aside) serves() *resource.Resource { return a.left()[0] }

// versions are all that the object is, and was, as far as they may come again; the last one is what it is.
func (t *trial) versions() []*resource.Resource { return append(slices.Clone(t.earlier), t.now) }

// quarantine knows which objects changed last, and which are set aside. It is not safe for concurrent use.
type quarantine struct {
	turn    uint64 // counts the changes
	changed bool   // what is in quarantine has
	trials  map[resource.Key]*list.Element
	order   *list.List              // of *trial, the one that changed last at the end
	old     map[resource.Key]*trial // that have not changed, and are suspected all the same: turn is zero
	asides  map[resource.Key]map[reach]*aside
	of      map[reach]map[resource.Key]*aside // the same
}

func newQuarantine() *quarantine {
	return &quarantine{trials: make(map[resource.Key]*list.Element), order: list.New(), old: make(map[resource.Key]*trial), asides: make(map[resource.Key]map[reach]*aside), of: make(map[reach]map[resource.Key]*aside)}
}

// add has an object be set aside for somebody.
func (q *quarantine) add(key resource.Key, of reach, a *aside) {
	if q.asides[key] == nil {
		q.asides[key] = make(map[reach]*aside)
	}
	if q.of[of] == nil {
		q.of[of] = make(map[resource.Key]*aside)
	}
	q.asides[key][of], q.of[of][key] = a, a
}

// drop undoes that.
func (q *quarantine) drop(key resource.Key, of reach) {
	if delete(q.asides[key], of); len(q.asides[key]) == 0 {
		delete(q.asides, key)
	}
	if delete(q.of[of], key); len(q.of[of]) == 0 {
		delete(q.of, of)
	}
}

// admit returns what is to be translated for everybody of an object that was one thing, or not there, and is another one now. Unless it is on trial,
// what it was is not remembered, and it cannot be set aside.
func (q *quarantine) admit(key resource.Key, was, now *resource.Resource, onTrial bool) *resource.Resource {
	if now == nil {
		q.turn++
		q.release(key)
		q.forget(key)
		return nil
	}
	known := false
	for _, a := range q.asides[key] {
		if a.now == nil && a.why.Version == now.Version() { // an earlier run has rejected it
			a.now, a.why.Origin = now, now.Origin()
		}
		known = known || a.now != nil && a.now.Version() == now.Version()
	}
	switch {
	case known || was != nil && was.Version() == now.Version():
		return q.present(key, now)
	case !onTrial && q.asides[key] == nil:
		return now
	}
	q.put(&trial{key: key, now: now, earlier: q.before(key, was), turn: q.turn + 1})
	return now
}

// present returns what is translated for everybody of an object that is now.
func (q *quarantine) present(key resource.Key, now *resource.Resource) *resource.Resource {
	if a := q.asides[key][everybody]; a != nil && now != nil && a.now != nil && a.now.Version() == now.Version() {
		return a.serves()
	}
	return now
}

// before returns what an object was before it changed, at last what is certainly good.
func (q *quarantine) before(key resource.Key, was *resource.Resource) []*resource.Resource {
	earlier := []*resource.Resource{was}
	switch a, e := q.asides[key][everybody], q.trials[key]; {
	case a != nil: // what it was was rejected
		earlier = a.left()
	case e != nil && time.Since(e.Value.(*trial).since) < settled:
		earlier = append(earlier, e.Value.(*trial).earlier...)
	default:
		for _, a := range q.asides[key] { // of some
			earlier = append(earlier, a.serves())
			break
		}
	}
	if n := len(earlier); n > maxEarlier {
		earlier = append(earlier[:maxEarlier-1:maxEarlier-1], earlier[n-1])
	}
	return earlier
}

// left are the earlier versions that were not rejected.
func (a *aside) left() []*resource.Resource {
	if a.depth >= len(a.earlier) {
		return []*resource.Resource{nil}
	}
	return a.earlier[a.depth:]
}

// put puts an object on trial, for whom nothing is set aside any more.
func (q *quarantine) put(t *trial) {
	q.release(t.key)
	q.forget(t.key)
	q.turn = max(q.turn, t.turn)
	t.since = time.Now()
	q.trials[t.key] = q.order.PushBack(t)
	if q.order.Len() > maxTrials {
		q.forget(q.order.Front().Value.(*trial).key)
	}
}

// release ends that an object is set aside.
func (q *quarantine) release(key resource.Key) {
	for of := range q.asides[key] {
		q.drop(key, of)
		q.changed = true
	}
}

func (q *quarantine) forget(key resource.Key) {
	delete(q.old, key)
	if e := q.trials[key]; e != nil {
		q.order.Remove(e)
		delete(q.trials, key)
	}
}

// parole puts those that are set aside on trial once more of which it is so, and returns them. They are as old as ever.
func (q *quarantine) parole(is func(*aside) bool) (all []*trial) {
	for key, list := range maps.Clone(q.asides) {
		var looked *trial // of what was set aside at one time for several
		for _, a := range list {
			if a.trial == looked {
				continue
			}
			if looked = a.trial; a.now != nil && is(a) {
				t := &trial{key: key, now: a.now, earlier: a.left(), turn: a.turn}
				q.put(t)
				all = append(all, t)
				break
			}
		}
	}
	return all
}

// suspects returns the objects that could be set aside for the clients of a profile, the one that changed last first.
func (q *quarantine) suspects(of reach) (all []*trial) {
	for e := q.order.Back(); e != nil; e = e.Prev() {
		if t := e.Value.(*trial); q.asides[t.key][everybody] == nil && q.asides[t.key][of] == nil {
			all = append(all, t)
		}
	}
	return all
}

// recall puts an object on trial that has not changed, as if it had not been there before, for the clients of a profile. It returns nil if the object is on
// trial as another one, or set aside.
func (q *quarantine) recall(key resource.Key, now *resource.Resource, of reach) *trial {
	if now == nil || q.trials[key] != nil || q.asides[key][everybody] != nil || q.asides[key][of] != nil {
		return nil
	}
	if q.old[key] == nil {
		q.old[key] = &trial{key: key, now: now, earlier: []*resource.Resource{nil}}
	}
	q.old[key].hearing++
	return q.old[key]
}

// dismiss notes that a hearing that recalled an object is over. What was recalled is forgotten then, if that is much.
func (q *quarantine) dismiss(t *trial) {
	if t.hearing--; t.hearing == 0 && len(q.old) > maxTrials && q.old[t.key] == t {
		delete(q.old, t.key)
	}
}

// isOn says whether an object is still on trial as it was.
func (q *quarantine) isOn(t *trial) bool {
	e := q.trials[t.key]
	return e != nil && e.Value == t || q.old[t.key] == t
}

// insteadOf returns what is translated in place of objects for the clients of a scope and not for everybody: what is set aside for its profile, or
// just tried with it.
func (q *quarantine) insteadOf(s *scope) map[resource.Key]*resource.Resource {
	all := make(map[resource.Key]*resource.Resource)
	for key, a := range q.of[s.reach] {
		if a.now != nil && q.asides[key][everybody] == nil {
			all[key] = a.serves()
		}
	}
	for _, a := range s.tried {
		if q.isOn(a.trial) {
			all[a.key] = a.serves()
		}
	}
	return all
}

// convict sets an object aside for those for whom why says, unless it has changed since it was suspected, or there is no place, and returns what else is not set
// aside any more for that. What is set aside already stays so.
func (q *quarantine) convict(a *aside, why Quarantined, inUse func(reach) bool) (given []resource.Key, err error) {
	if q.asides[a.key][everybody] != nil || q.asides[a.key][why.of] != nil {
		return nil, nil
	}
	if !q.isOn(a.trial) {
		return nil, errChanged
	}
	ok, given := q.makeRoom(a.key, why.of, why.host, inUse)
	if !ok {
		return nil, errNoRoom
	}
	why.Key, why.Version, why.Origin = a.key, a.now.Version(), a.now.Origin()
	if s := a.serves(); s != nil {
		why.Serves = s.Version()
	}
	q.turn++ // what there is is otherwise now
	q.add(a.key, why.of, &aside{trial: a.trial, depth: a.depth, why: &why})
	q.changed = true
	return given, nil
}

// list returns what there is in quarantine, in order of key: of each object for all, or for those who were the first.
func (q *quarantine) list() (all []Quarantined) {
	for _, list := range q.asides {
		var first *aside
		for _, a := range list {
			if a.now != nil && (first == nil || a.why.of == everybody || first.why.of != everybody && a.why.Since.Before(first.why.Since)) {
				first = a
			}
		}
		if first != nil {
			all = append(all, *first.why)
		}
	}
	slices.SortFunc(all, func(a, b Quarantined) int { return a.Key.Compare(b.Key) })
	return all
}

// each returns all that is set aside and is so, in order of key, and for whom.
func (q *quarantine) each(is func(*aside) bool) (all []*aside) {
	for _, list := range q.asides {
		for _, a := range list {
			if is(a) {
				all = append(all, a)
			}
		}
	}
	slices.SortFunc(all, func(a, b *aside) int {
		if n := a.why.Key.Compare(b.why.Key); n != 0 {
			return n
		}
		return cmp.Compare(a.why.of, b.why.of)
	})
	return all
}
