package envoy

import (
	"container/list"
	"slices"
	"time"

	"tributary/resource"
)

// An object that makes Envoys reject what they are sent is set aside: an earlier version of it is translated in its place, for everybody, until it
// changes. So all that is made of several objects is made as ever, and nothing of what is served has to be kept.

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
}

// aside is a version of an object that is not translated, and what is in its place.
type aside struct {
	trial
	depth int          // which of the earlier ones
	why   *Quarantined // nil for one that is only suspected
}

// Quarantined is an object that Envoys reject.
type Quarantined struct {
	Key       resource.Key
	Version   string // that is rejected
	Serves    string // the version that is served in its place; empty if the object is left out
	Origin    resource.Origin
	Since     time.Time
	TypeURL   string   // of what was rejected
	Resources []string // what was rejected, as far as is known
	Error     string   // as the client put it
	Node      string   // of the client
	Peer      string
	host      string
}

// serves returns what is translated in place of the object, or nil if it is left out.
func (a *aside) serves() *resource.Resource { return a.earlier[min(a.depth, len(a.earlier)-1)] }

// quarantine knows which objects changed last, and which are set aside. It is not safe for concurrent use.
type quarantine struct {
	turn    uint64 // counts the changes
	changed bool   // what is in quarantine has
	trials  map[resource.Key]*list.Element
	order   *list.List // of *trial, the one that changed last at the end
	asides  map[resource.Key]*aside
}

func newQuarantine() *quarantine {
	return &quarantine{trials: make(map[resource.Key]*list.Element), order: list.New(), asides: make(map[resource.Key]*aside)}
}

// admit returns what is to be translated of an object that was one thing, or not there, and is another one now. Unless it is on trial, what it was
// is not remembered, and it cannot be set aside.
func (q *quarantine) admit(key resource.Key, was, now *resource.Resource, onTrial bool) *resource.Resource {
	a := q.asides[key]
	switch {
	case now == nil:
		q.turn++
		q.release(key)
		q.forget(key)
		return nil
	case a != nil && a.now == nil && a.why.Version == now.Version(): // an earlier run has rejected it
		a.now, a.why.Origin = now, now.Origin()
		return a.serves()
	case a != nil && a.now != nil && a.now.Version() == now.Version():
		return a.serves()
	case was != nil && was.Version() == now.Version():
		return now
	case !onTrial && a == nil:
		return now
	}
	earlier := []*resource.Resource{was}
	if a != nil && a.why != nil { // what it was was rejected
		earlier = a.earlier[min(a.depth, len(a.earlier)-1):]
	} else if e := q.trials[key]; e != nil && time.Since(e.Value.(*trial).since) < settled {
		earlier = append(earlier, e.Value.(*trial).earlier...)
	}
	if n := len(earlier); n > maxEarlier {
		earlier = append(earlier[:maxEarlier-1:maxEarlier-1], earlier[n-1])
	}
	q.release(key)
	q.forget(key)
	q.turn++
	q.trials[key] = q.order.PushBack(&trial{key, now, earlier, q.turn, time.Now()})
	if q.order.Len() > maxTrials {
		q.forget(q.order.Front().Value.(*trial).key)
	}
	return now
}

// release ends that an object is set aside.
func (q *quarantine) release(key resource.Key) {
	if a := q.asides[key]; a != nil && a.why != nil {
		q.changed = true
	}
	delete(q.asides, key)
}

func (q *quarantine) forget(key resource.Key) {
	if e := q.trials[key]; e != nil {
		q.order.Remove(e)
		delete(q.trials, key)
	}
}

// suspects returns the objects that could be set aside, the one that changed last first.
func (q *quarantine) suspects() (all []*trial) {
	for e := q.order.Back(); e != nil; e = e.Prev() {
		if t := e.Value.(*trial); q.asides[t.key] == nil {
			all = append(all, t)
		}
	}
	return all
}

// set sets objects aside for what they were so many versions before, but for those that have changed since they were suspected.
func (q *quarantine) set(suspects []*trial, depth int) {
	for _, t := range suspects {
		if e := q.trials[t.key]; e != nil && e.Value == t {
			q.asides[t.key] = &aside{trial: *t, depth: depth}
		}
	}
}

// acquit ends that objects are only suspected.
func (q *quarantine) acquit(suspects []*trial) {
	for _, t := range suspects {
		if a := q.asides[t.key]; a != nil && a.now == t.now && a.why == nil {
			delete(q.asides, t.key)
		}
	}
}

// convict notes why an object is set aside, unless it has changed since.
func (q *quarantine) convict(t *trial, why Quarantined) bool {
	a := q.asides[t.key]
	if a == nil || a.now != t.now {
		return false
	}
	why.Key, why.Version, why.Origin = t.key, t.now.Version(), t.now.Origin()
	if s := a.serves(); s != nil {
		why.Serves = s.Version()
	}
	a.why, q.changed = &why, true
	return true
}

// list returns what there is in quarantine, in order of key.
func (q *quarantine) list() []Quarantined {
	return q.listIf(func(a *aside) bool { return a.now != nil })
}

func (q *quarantine) listIf(meets func(*aside) bool) (all []Quarantined) {
	for _, a := range q.asides {
		if a.why != nil && meets(a) {
			all = append(all, *a.why)
		}
	}
	slices.SortFunc(all, func(a, b Quarantined) int { return a.Key.Compare(b.Key) })
	return all
}
