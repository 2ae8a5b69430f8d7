// Package guard stands between a source and its table, and holds a mass loss back: what a source suddenly no longer has
// is far more often the fault of a registry, a mount or a script than it is meant, and clients act on it at once.
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
	// Changed is called when State is another, and with those of which Held is, for whoever keeps them. It must not block, nor
	// call the guard.
	Changed func(keys []resource.Key)
	// Told is called by Run with the beginning and the end of each hold, in words for people.
	Told func(began bool, text string)
	// Ended is called by Run with what the end of a hold changed in the table.
	Ended func(hold string, changes []memstore.Change)
}

// Table is what is guarded: the table of one source, into which nobody else writes.
type Table interface {
	Apply(puts []*resource.Resource, deletes []resource.Key) ([]memstore.Change, memstore.Snapshot)
	MarkSynced()
	Snapshot() memstore.Snapshot
}

// Guard is a Table in front of another. What adds passes at once. When a loss is too large it is held: the objects stay
// in the table, and the guard remembers what the source says of them. While it holds, further losses join; see ApplyExplained for
// those that do not.
// A hold ends when a person releases it, after Settings.HoldFor, when all of it has come back, or when what is left of it has
// been below the limits for a window.
//
// The guard also notes when each key was first seen, for people.
//
// All methods are safe for concurrent use.
type Guard struct {
	table   Table
	log     *slog.Logger
	changed func(keys []resource.Key)
	told    func(began bool, text string)
	ended   func(hold string, changes []memstore.Change)
	now     func() time.Time
	wake    chan struct{} // for Run; holds one

	mu       sync.Mutex // held by who commits, so that commits are in order
	settings Settings
	has      tally     // what is in the table
	most     tally     // objects that there were since the first loss in recent
	recent   window    // the losses that were let through; while there is a hold, none of them is forgotten
	hold     *hold     // nil if there is none
	last     string    // the identity of the hold that began last
	holds    int       // begun so far
	news     []news    // for Run
	changes  time.Time // when the table was last changed; zero if never
	// rereading says that the source is read by other settings than what is in the table: that it lacks something is no loss of its own.
	rereading bool
}

// New returns a guard of table and what it has already.
func New(table Table, opts Options) *Guard {
	g := &Guard{
		table: table, log: opts.Log, changed: opts.Changed, told: opts.Told, ended: opts.Ended, now: time.Now, wake: make(chan struct{}, 1),
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
		g.has.add(r.Key().Kind, 1, endpoints(r))
	}
	g.most = g.has.clone()
	return g
}

// Snapshot returns what is in the table.
func (g *Guard) Snapshot() memstore.Snapshot { return g.table.Snapshot() }

// Apply has the table follow, but for what is held. It returns what changed there.
func (g *Guard) Apply(puts []*resource.Resource, deletes []resource.Key) ([]memstore.Change, memstore.Snapshot) {
	return g.apply(puts, deletes, false)
}

func (g *Guard) apply(puts []*resource.Resource, deletes []resource.Key, explained bool) ([]memstore.Change, memstore.Snapshot) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before, now := g.table.Snapshot(), g.now()
	puts = firstSeen(puts, before, now)
	if g.settings.Off {
		return g.commit(puts, deletes, now)
	}
	losses := lossesOf(puts, deletes, before, g.hold)
	switch {
	case g.rereading:
		losses = g.hold.known(losses)
	case g.hold != nil:
		losses = g.join(losses, explained, puts, before, now)
	default:
		g.forget(now)
		if why := g.tooMuch(losses, puts, before); why != "" {
			g.begin(now, why)
		}
	}
	if g.hold == nil {
		return g.commit(puts, deletes, now)
	}
	puts, deletes = g.hold.take(losses, before, puts, deletes)
	changes, after := g.commit(puts, deletes, now)
	if touched := g.hold.touched; len(touched) > 0 {
		g.hold.touched = nil
		g.changed(touched)
	}
	g.look(now)
	return changes, after
}

// MarkSynced says that the source has been read as a whole.
func (g *Guard) MarkSynced() {
	g.mu.Lock()
	g.rereading = false
	g.mu.Unlock()
	g.table.MarkSynced()
}

// Relabel gives all that there is another name of its source, be it held or not.
func (g *Guard) Relabel(source string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	named := func(r *resource.Resource) *resource.Resource {
		if r == nil {
			return nil
		}
		o := r.Origin()
		o.Source = source
		return r.WithOrigin(o)
	}
	var puts []*resource.Resource
	for r := range g.table.Snapshot().All() {
		puts = append(puts, named(r))
	}
	for _, l := range g.hold.first(g.hold.size()) {
		l.was, l.desired, l.served = named(l.was), named(l.desired), named(l.served)
		g.hold.held.Set(l)
	}
	g.commit(puts, nil, g.now())
}

// Configure changes the settings. If they are to let everything through, what is held goes, too.
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
	g.look(g.now())
	g.ring() // the end of the hold may be another
}

// The errors of Release.
var (
	ErrNothingHeld = errors.New("nothing is held")
	ErrOtherHold   = errors.New("another loss is held by now")
)

// Release lets go what is held, on behalf of somebody, and says how much that was. If id is not empty, it is that of the
// hold that is meant.
func (g *Guard) Release(id, by string) (objects, endpoints int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.hold == nil:
		return 0, 0, ErrNothingHeld
	case id != "" && id != g.hold.id:
		return 0, 0, fmt.Errorf("%w: %s, and not %s", ErrOtherHold, g.hold.id, id)
	}
	objects, endpoints = g.hold.sum.objects, g.hold.sum.endpoints
	g.release("it was released by " + by)
	return objects, endpoints, nil
}

// expire ends the hold if its time has come.
func (g *Guard) expire() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.hold == nil {
		return
	}
	if at, why := g.hold.ends(g.settings); !at.IsZero() && !g.now().Before(at) {
		g.release(why)
	}
}

// LastChange returns when the table was last changed, be it by the source or by the end of a hold; zero if never.
func (g *Guard) LastChange() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.changes
}

// release has the table be as the source says. The caller holds mu, and there is a hold.
func (g *Guard) release(why string) {
	puts, deletes := g.hold.desired()
	hold := g.hold.id
	g.end(why)
	changes, _ := g.commit(puts, deletes, g.now())
	g.brought(hold, changes)
	g.forgive()
}

// forgive forgets what was lost: it was meant. The caller holds mu.
func (g *Guard) forgive() {
	g.recent = window{}
	g.most = g.has.clone()
}

// look ends the hold if nothing of it is left, and notes whether what is left is below the limits. What was let through
// before it began belongs to the same loss. The caller holds mu, and there is a hold.
func (g *Guard) look(now time.Time) {
	h := g.hold
	switch {
	case h.size() == 0:
		g.end("everything has come back")
	case g.settings.tooMuch(question{now: h.sum, past: g.recent.sum, has: g.base(), most: g.most}) != "":
		h.below = time.Time{}
	case h.below.IsZero():
		h.below = now
		g.ring()
		g.changed(nil)
	}
}

// begin starts a hold. The caller holds mu.
func (g *Guard) begin(now time.Time, why string) {
	h := &hold{id: identify(now, g.last), since: now, why: why, grew: now}
	g.hold, g.last = h, h.id
	g.holds++
	g.tell(news{began: true, id: h.id, why: why})
}

// end ends the hold. The caller holds mu.
func (g *Guard) end(why string) {
	h := g.hold
	g.hold = nil
	g.tell(news{id: h.id, why: why, objects: h.sum.objects, endpoints: h.sum.endpoints})
}

// commit applies, and enters the losses in the window: while there is a hold that is only what comes back, since what is
// lost is held. The caller holds mu.
func (g *Guard) commit(puts []*resource.Resource, deletes []resource.Key, now time.Time) ([]memstore.Change, memstore.Snapshot) {
	changes, after := g.table.Apply(puts, deletes)
	if len(changes) > 0 {
		g.changes = now
	}
	for _, c := range changes {
		was, is, objects := endpoints(c.Old), endpoints(c.New), 0
		switch {
		case c.Old == nil:
			objects = 1
		case c.New == nil:
			objects = -1
		}
		g.has.add(c.Key().Kind, objects, is-was)
		if !g.settings.Off && (g.hold == nil && !g.rereading || is >= was && c.New != nil) {
			g.recent.note(c.Key(), c.New == nil, was, is, now)
		}
		if _, held := g.hold.get(c.Key()); g.hold != nil && !held && is >= was && c.New != nil {
			g.hold.passed.note(c.Key(), false, was, is, now) // it is back
		}
	}
	for kind, n := range g.has.kinds {
		if n > g.most.kinds[kind] || g.recent.sum.kinds[kind] == 0 {
			g.most.kinds[kind] = n
		}
	}
	if g.has.objects > g.most.objects || g.recent.sum.objects == 0 {
		g.most.objects = g.has.objects
	}
	return changes, after
}

// forget forgets what was lost longer than a window ago. The caller holds mu, and there is no hold.
func (g *Guard) forget(now time.Time) {
	g.recent.forget(now.Add(-g.settings.Window))
	for kind := range g.most.kinds {
		if g.recent.sum.kinds[kind] == 0 {
			g.most.kinds[kind] = g.has.kinds[kind]
		}
	}
	if g.recent.sum.objects == 0 {
		g.most.objects = g.has.objects
	}
}

// base is what there would be without a hold: what the table has, without the new endpoints of what is held.
func (g *Guard) base() tally {
	base := g.has
	if g.hold != nil {
		base.endpoints -= g.hold.surplus
	}
	return base
}

// tooMuch says why losses are to be held, or nothing. The caller holds mu, and there is no hold.
func (g *Guard) tooMuch(losses []loss, puts []*resource.Resource, before memstore.Snapshot) string {
	if len(losses) == 0 {
		return ""
	}
	return g.settings.tooMuch(g.question(losses, puts, before))
}

// question is whether losses are too much, with what comes in the same commit. The caller holds mu.
func (g *Guard) question(losses []loss, puts []*resource.Resource, before memstore.Snapshot) question {
	q := question{past: g.recent.sum, has: g.base(), most: g.most}
	for _, l := range losses {
		q.now.add(l.key.Kind, l.objects(), l.endpoints())
	}
	fresh := make(map[resource.Key]bool)
	for _, r := range puts {
		if !fresh[r.Key()] && before.Get(r.Key()) == nil {
			fresh[r.Key()] = true
			q.new.add(r.Key().Kind, 1, endpoints(r))
		}
	}
	return q
}

// firstSeen notes of those of puts that are new that they are first seen now.
func firstSeen(puts []*resource.Resource, before memstore.Snapshot, now time.Time) []*resource.Resource {
	stamped := slices.Clone(puts)
	for i, r := range stamped {
		if !r.Seen().IsZero() {
			continue
		}
		if old := before.Get(r.Key()); old == nil || old.Seen().IsZero() {
			stamped[i] = r.WithSeen(now.UTC().Truncate(time.Second))
		}
	}
	return stamped
}
