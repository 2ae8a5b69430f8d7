// Package guard decides which mass losses of a source are held back. The reason for a sudden mass loss is more often a
// broken registry, mount or script than intent, and clients act on it at once. The package does no I/O, and has neither
// locks nor a clock: the ledger of a source asks it, and applies its answers to the table.
package guard

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"tributary/memstore"
	"tributary/resource"
)

// Moment is the content of the source's table at a time.
type Moment struct {
	Now    time.Time
	Served memstore.Snapshot
}

// Change is a change of the table; each key occurs once.
type Change struct {
	Puts    []*resource.Resource
	Deletes []resource.Key
}

// Keys returns the keys of the change.
func (c Change) Keys() []resource.Key {
	keys := slices.Clone(c.Deletes)
	for _, r := range c.Puts {
		keys = append(keys, r.Key())
	}
	return keys
}

// Commit is a change that a source wants.
type Commit struct {
	Change

	RemovalsObserved bool // see sources.Content.RemovalsObserved
	// Withdrawn are further deletions, of objects that may not be served any longer, even if they are held.
	Withdrawn []resource.Key
}

// Guard lets additions pass at once. A loss that is too large is held: the objects stay in the table, and the guard
// remembers how the source wants them. Further losses join the hold; see join for exceptions. A hold ends when a person
// releases it, after Settings.HoldFor, when all objects and endpoints are back, when the remaining losses are below the
// limits for a window, or when the guard is turned off.
//
// The caller applies each returned change to the table at once. A Guard is not safe for concurrent use.
type Guard struct {
	settings  Settings
	counts    tally          // of the table
	peak      tally          // most objects since the first loss in recent
	recent    window         // losses that passed; none is forgotten during a hold
	hold      *hold          // nil if there is none
	last      string         // id of the newest hold
	holdCount int            // begun so far
	events    []Event        // for TakeEvents
	changed   []resource.Key // likewise
	// newSettingsUnread is set until the source was read with its changed settings. A missing object is not a new loss
	// meanwhile.
	newSettingsUnread bool
}

// New returns the guard of a table with this content.
func New(settings Settings, served memstore.Snapshot) *Guard {
	guard := &Guard{settings: settings.withDefaults()}
	for r := range served.All() {
		guard.counts.add(r.Key().Kind, 1, endpoints(r))
	}
	guard.peak = guard.counts.clone()
	return guard
}

// Judge returns what passes of a commit, with the objects to serve for held losses.
func (g *Guard) Judge(moment Moment, commit Commit) Change {
	losses := g.hold.lossesOf(commit.Change, moment.Served)
	switch {
	case g.settings.Off:
	case g.newSettingsUnread:
		losses = slices.DeleteFunc(losses, func(l loss) bool {
			_, held := g.hold.get(l.key)
			return !held
		})
	case g.hold != nil:
		losses = g.join(moment, losses, commit)
	default:
		g.forget(moment.Now)
		if len(losses) > 0 {
			if reason := g.settings.exceeded(g.measure(losses, commit.Puts, moment.Served)); reason != "" {
				g.begin(moment.Now, reason)
			}
		}
	}
	commit.Deletes = append(slices.Clip(commit.Deletes), commit.Withdrawn...)
	if g.hold == nil {
		return g.pass(moment, commit.Change)
	}
	passes := g.pass(moment, g.hold.split(losses, moment.Served, commit.Change))
	g.changed = append(g.changed, g.hold.changed...)
	g.hold.changed = nil
	g.reassess(moment.Now)
	return passes
}

// MarkRead notes that the whole source has been read.
func (g *Guard) MarkRead() { g.newSettingsUnread = false }

// Configure changes the settings. Turning the guard off releases the hold.
func (g *Guard) Configure(moment Moment, settings Settings) (released Change) {
	g.settings = settings.withDefaults()
	switch {
	case g.hold == nil:
	case settings.Off:
		return g.release(moment, "the guard was turned off")
	default:
		g.reassess(moment.Now)
	}
	return Change{}
}

// The errors of Release.
var (
	ErrNothingHeld = errors.New("nothing is held")
	ErrOtherHold   = errors.New("a different hold is active")
)

// Release ends the hold on behalf of a client, and returns the number of objects and endpoints that it held. If id is
// not empty, only a hold of this id is released.
func (g *Guard) Release(moment Moment, id, client string) (released Change, objects, endpoints int, err error) {
	switch {
	case g.hold == nil:
		return Change{}, 0, 0, ErrNothingHeld
	case id != "" && id != g.hold.id:
		return Change{}, 0, 0, fmt.Errorf("%w: %s, not %s", ErrOtherHold, g.hold.id, id)
	}
	objects, endpoints = g.hold.sum.objects, g.hold.heldEndpoints
	return g.release(moment, "it was released by "+client), objects, endpoints, nil
}

// EndDue ends the hold if its end time has passed.
func (g *Guard) EndDue(m Moment) (released Change) {
	if endTime, reason := g.EndTime(); !endTime.IsZero() && !m.Now.Before(endTime) {
		return g.release(m, reason)
	}
	return Change{}
}

// release ends the hold and returns its losses. There is a hold.
func (g *Guard) release(moment Moment, reason string) Change {
	wanted := g.hold.desired()
	g.changed = append(g.changed, wanted.Keys()...) // also where the served object is as desired
	g.end(reason)
	g.pass(moment, wanted)
	g.recent = window{} // these losses were intended
	g.peak = g.counts.clone()
	return wanted
}

// reassess ends the hold if it is empty, and notes whether it is below the limits, together with the losses that passed
// before it began. There is a hold.
func (g *Guard) reassess(now time.Time) {
	hold := g.hold
	switch {
	case hold.size() == 0:
		g.end("everything has come back")
	case g.settings.exceeded(lossCheck{
		losing: hold.sum, lostRecently: g.recent.sum, present: g.presentWithoutSurplus(), peak: g.peak,
	}) != "":
		hold.belowSince = time.Time{}
	case hold.belowSince.IsZero():
		hold.belowSince = now
	}
}

// begin starts a hold.
func (g *Guard) begin(now time.Time, reason string) {
	hold := &hold{id: holdID(now, g.last), begun: now, reason: reason, lastJoined: now}
	g.hold, g.last = hold, hold.id
	g.holdCount++
	g.events = append(g.events, Event{Began: true, id: hold.id, reason: reason})
}

// end ends the hold.
func (g *Guard) end(reason string) {
	h := g.hold
	g.hold = nil
	g.events = append(g.events, Event{id: h.id, reason: reason, objects: h.sum.objects, endpoints: h.heldEndpoints})
}

// pass counts a change of the table, and returns it. It notes losses in the window. During a hold it notes only keys
// that come back: the hold has the losses.
func (g *Guard) pass(moment Moment, change Change) Change {
	note := func(key resource.Key, next *resource.Resource) {
		previous := moment.Served.Get(key)
		before, after := endpoints(previous), endpoints(next)
		switch {
		case previous == nil && next == nil:
			return
		case previous == nil:
			g.counts.add(key.Kind, 1, after)
		case next == nil:
			g.counts.add(key.Kind, -1, -before)
		default:
			g.counts.add(key.Kind, 0, after-before)
		}
		loses := next == nil || after < before
		if !g.settings.Off && (g.hold == nil && !g.newSettingsUnread || !loses) {
			g.recent.note(key, next == nil, before, after, moment.Now)
		}
		if _, held := g.hold.get(key); g.hold != nil && !held && !loses {
			g.hold.notJoined.note(key, false, before, after, moment.Now) // it is back
		}
	}
	for _, key := range change.Deletes {
		note(key, nil)
	}
	for _, r := range change.Puts {
		note(r.Key(), r)
	}
	g.updatePeak()
	return change
}

// forget forgets losses older than a window. There is no hold.
func (g *Guard) forget(now time.Time) {
	g.recent.forget(now.Add(-g.settings.Window))
	g.updatePeak()
}

// updatePeak keeps the peak where losses are recent, and else begins it with the present numbers.
func (g *Guard) updatePeak() {
	peak := g.counts.clone()
	for kind, n := range g.peak.kinds {
		if g.recent.sum.kinds[kind] != 0 {
			peak.kinds[kind] = max(peak.kinds[kind], n)
		}
	}
	if g.recent.sum.objects != 0 {
		peak.objects = max(peak.objects, g.peak.objects)
	}
	g.peak = peak
}

// presentWithoutSurplus counts the table without the surplus endpoints of held objects.
func (g *Guard) presentWithoutSurplus() tally {
	base := g.counts
	if g.hold != nil {
		base.endpoints -= g.hold.surplus
	}
	return base
}

// measure returns the numbers that decide whether the losses of a commit are held.
func (g *Guard) measure(losses []loss, puts []*resource.Resource, before memstore.Snapshot) lossCheck {
	check := lossCheck{lostRecently: g.recent.sum, present: g.presentWithoutSurplus(), peak: g.peak}
	for _, l := range losses {
		objects, lost := g.hold.notYetHeld(l)
		check.losing.add(l.key.Kind, objects, lost)
	}
	for _, r := range puts {
		if before.Get(r.Key()) == nil {
			check.arriving.add(r.Key().Kind, 1, endpoints(r))
		}
	}
	return check
}
