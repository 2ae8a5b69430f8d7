// Package guard holds back mass losses of a source. The reason for a sudden mass loss is more often a broken registry,
// mount or script than intent, and clients act on it at once.
package guard

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"tributary/memstore"
	"tributary/resource"
)

// Options configure a Guard. The zero value is ready to use.
type Options struct {
	Settings
	Log *slog.Logger // default: none
	// Changed is called when State changes, and passes the keys with a changed Held. It must neither block nor call the
	// guard.
	Changed func(keys []resource.Key)
	// OnEvent is called by Run when a hold begins, unless a restart resumed it, and when it ends; not beyond maxEvents.
	OnEvent func(began bool, text string)
	// Ended is called by Run with the changes that the end of a hold made; not if there are none.
	Ended func(hold string, changes []memstore.Change)
}

// Table is the table of a source. The guard is its only writer.
type Table interface {
	Apply(puts []*resource.Resource, deletes []resource.Key) ([]memstore.Change, memstore.Snapshot)
	MarkSynced()
	Snapshot() memstore.Snapshot
}

// Guard is a Table in front of another. Additions pass at once. A loss that is too large is held: the objects stay in
// the table, and the guard remembers how the source wants them. Further losses join the hold; see ApplyExplained for
// exceptions. A hold ends when a person releases it, after Settings.HoldFor, when all objects and endpoints are back,
// when the remaining losses are below the limits for a window, or when the guard is turned off.
//
// All methods are safe for concurrent use.
type Guard struct {
	table   Table
	log     *slog.Logger
	changed func(keys []resource.Key)
	onEvent func(began bool, text string)
	ended   func(hold string, changes []memstore.Change)
	now     func() time.Time
	wake    chan struct{} // for Run; holds one

	mu         sync.Mutex // held during commits, so that they are in order
	settings   Settings
	counts     tally       // of the table
	peak       tally       // most objects since the first loss in recent
	recent     window      // losses that passed; none is forgotten during a hold
	hold       *hold       // nil if there is none
	last       string      // id of the newest hold
	holdCount  int         // begun so far
	events     []holdEvent // for Run
	lastChange time.Time   // of the table's last change; zero if never
	// newSettingsUnread is set until the source was read with its changed settings. A missing object is not a new loss
	// meanwhile.
	newSettingsUnread bool
}

// New returns a guard of table, which may have content.
func New(table Table, opts Options) *Guard {
	g := &Guard{
		table: table, log: opts.Log, changed: opts.Changed, onEvent: opts.OnEvent, ended: opts.Ended, now: time.Now,
		wake:     make(chan struct{}, 1),
		settings: opts.withDefaults(),
	}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	if g.changed == nil {
		g.changed = func([]resource.Key) {}
	}
	if g.ended == nil {
		g.ended = func(string, []memstore.Change) {}
	}
	for r := range table.Snapshot().All() {
		g.counts.add(r.Key().Kind, 1, endpoints(r))
	}
	g.peak = g.counts.clone()
	return g
}

// Snapshot returns the table's content.
func (g *Guard) Snapshot() memstore.Snapshot { return g.table.Snapshot() }

// Apply applies puts and deletes to the table, except held losses, and returns the table's changes.
func (g *Guard) Apply(puts []*resource.Resource, deletes []resource.Key) ([]memstore.Change, memstore.Snapshot) {
	return g.apply(puts, deletes, false)
}

func (g *Guard) apply(puts []*resource.Resource, deletes []resource.Key, explained bool) ([]memstore.Change, memstore.Snapshot) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before, now := g.table.Snapshot(), g.now()
	if g.settings.Off {
		return g.commit(puts, deletes, now)
	}
	losses := lossesOf(puts, deletes, before, g.hold)
	switch {
	case g.newSettingsUnread:
		losses = slices.DeleteFunc(losses, func(l loss) bool {
			_, held := g.hold.get(l.key)
			return !held
		})
	case g.hold != nil:
		losses = g.join(losses, explained, puts, before, now)
	default:
		g.forget(now)
		if len(losses) > 0 {
			if reason := g.settings.exceeded(g.measure(losses, puts, before)); reason != "" {
				g.begin(now, reason)
			}
		}
	}
	return g.applyHold(losses, before, puts, deletes, now)
}

// Withdraw removes objects that may not be served any longer, also those that are held.
func (g *Guard) Withdraw(keys []resource.Key) []memstore.Change {
	g.mu.Lock()
	defer g.mu.Unlock()
	changes, _ := g.applyHold(nil, g.table.Snapshot(), nil, keys, g.now())
	return changes
}

// applyHold adds losses to the hold, and applies the other puts and deletes to the table. The caller holds mu.
func (g *Guard) applyHold(losses []loss, before memstore.Snapshot, puts []*resource.Resource, deletes []resource.Key, now time.Time) (
	[]memstore.Change, memstore.Snapshot,
) {
	if g.hold == nil {
		return g.commit(puts, deletes, now)
	}
	puts, deletes = g.hold.split(losses, before, puts, deletes)
	changes, after := g.commit(puts, deletes, now)
	if touched := g.hold.changed; len(touched) > 0 {
		g.hold.changed = nil
		g.changed(touched)
	}
	g.reassess(now)
	return changes, after
}

// MarkSynced is called when the whole source has been read.
func (g *Guard) MarkSynced() {
	g.mu.Lock()
	g.newSettingsUnread = false
	g.mu.Unlock()
	g.table.MarkSynced()
}

// Configure changes the settings. Turning the guard off releases the hold.
func (g *Guard) Configure(s Settings) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.settings = s.withDefaults()
	if g.hold == nil {
		return
	}
	if s.Off {
		g.release("the guard was turned off")
		return
	}
	g.reassess(g.now())
	g.wakeRun() // the hold may end at another time
}

// The errors of Release.
var (
	ErrNothingHeld = errors.New("nothing is held")
	ErrOtherHold   = errors.New("a different hold is active")
)

// Release ends the hold on behalf of a client, and returns the number of objects and endpoints that it held. If id is
// not empty, only a hold of this id is released.
func (g *Guard) Release(id, client string) (objects, endpoints int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.hold == nil:
		return 0, 0, ErrNothingHeld
	case id != "" && id != g.hold.id:
		return 0, 0, fmt.Errorf("%w: %s, not %s", ErrOtherHold, g.hold.id, id)
	}
	objects, endpoints = g.hold.sum.objects, g.hold.served
	g.release("it was released by " + client)
	return objects, endpoints, nil
}

// endDueHold ends the hold if its end time has passed.
func (g *Guard) endDueHold() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.hold == nil {
		return
	}
	if endTime, reason := g.hold.endTime(g.settings); !endTime.IsZero() && !g.now().Before(endTime) {
		g.release(reason)
	}
}

// LastChange returns when the source or the end of a hold last changed the table; zero if never.
func (g *Guard) LastChange() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lastChange
}

// release ends the hold and applies its losses. The caller holds mu, and there is a hold.
func (g *Guard) release(reason string) {
	puts, deletes := g.hold.desired()
	hold := g.hold.id
	g.end(reason)
	changes, _ := g.commit(puts, deletes, g.now())
	if last := len(g.events) - 1; g.events[last].id == hold {
		g.events[last].changes = changes
	}
	g.recent = window{} // these losses were intended
	g.peak = g.counts.clone()
}

// reassess ends the hold if it is empty, and notes whether it is below the limits, together with the losses that passed
// before it began. The caller holds mu, and there is a hold.
func (g *Guard) reassess(now time.Time) {
	h := g.hold
	switch {
	case h.size() == 0:
		g.end("everything has come back")
	case g.settings.exceeded(lossCheck{losing: h.sum, lostRecently: g.recent.sum, present: g.presentWithoutSurplus(), peak: g.peak}) != "":
		h.belowSince = time.Time{}
	case h.belowSince.IsZero():
		h.belowSince = now
		g.wakeRun()
		g.changed(nil)
	}
}

// begin starts a hold. The caller holds mu.
func (g *Guard) begin(now time.Time, reason string) {
	h := &hold{id: holdID(now, g.last), begun: now, reason: reason, lastJoined: now}
	g.hold, g.last = h, h.id
	g.holdCount++
	g.queueEvent(holdEvent{began: true, id: h.id, reason: reason})
}

// end ends the hold. The caller holds mu.
func (g *Guard) end(reason string) {
	h := g.hold
	g.hold = nil
	g.queueEvent(holdEvent{id: h.id, reason: reason, objects: h.sum.objects, endpoints: h.served})
}

// commit applies puts and deletes, and notes losses in the window. During a hold it notes only keys that come back: the
// hold has the losses. The caller holds mu.
func (g *Guard) commit(puts []*resource.Resource, deletes []resource.Key, now time.Time) ([]memstore.Change, memstore.Snapshot) {
	changes, after := g.table.Apply(puts, deletes)
	if len(changes) > 0 {
		g.lastChange = now
	}
	for _, c := range changes {
		old, next, objects := endpoints(c.Old), endpoints(c.New), 0
		switch {
		case c.Old == nil:
			objects = 1
		case c.New == nil:
			objects = -1
		}
		g.counts.add(c.Key().Kind, objects, next-old)
		if !g.settings.Off && (g.hold == nil && !g.newSettingsUnread || next >= old && c.New != nil) {
			g.recent.note(c.Key(), c.New == nil, old, next, now)
		}
		if _, held := g.hold.get(c.Key()); g.hold != nil && !held && next >= old && c.New != nil {
			g.hold.notJoined.note(c.Key(), false, old, next, now) // it is back
		}
	}
	for kind, n := range g.counts.kinds {
		if n > g.peak.kinds[kind] || g.recent.sum.kinds[kind] == 0 {
			g.peak.kinds[kind] = n
		}
	}
	if g.counts.objects > g.peak.objects || g.recent.sum.objects == 0 {
		g.peak.objects = g.counts.objects
	}
	return changes, after
}

// forget forgets losses older than a window. The caller holds mu, and there is no hold.
func (g *Guard) forget(now time.Time) {
	g.recent.forget(now.Add(-g.settings.Window))
	for kind := range g.peak.kinds {
		if g.recent.sum.kinds[kind] == 0 {
			g.peak.kinds[kind] = g.counts.kinds[kind]
		}
	}
	if g.recent.sum.objects == 0 {
		g.peak.objects = g.counts.objects
	}
}

// presentWithoutSurplus counts the table without the surplus endpoints of held objects.
func (g *Guard) presentWithoutSurplus() tally {
	base := g.counts
	if g.hold != nil {
		base.endpoints -= g.hold.surplus
	}
	return base
}

// measure returns the numbers that decide whether the losses of a commit are held. The caller holds mu.
func (g *Guard) measure(losses []loss, puts []*resource.Resource, before memstore.Snapshot) lossCheck {
	c := lossCheck{lostRecently: g.recent.sum, present: g.presentWithoutSurplus(), peak: g.peak}
	for _, l := range losses {
		c.losing.add(l.key.Kind, l.objects(), l.endpoints())
	}
	counted := make(map[resource.Key]bool)
	for _, r := range puts {
		if !counted[r.Key()] && before.Get(r.Key()) == nil {
			counted[r.Key()] = true
			c.arriving.add(r.Key().Kind, 1, endpoints(r))
		}
	}
	return c
}
