// Package guard stands between a source and its table, and holds a mass loss back: what a source suddenly no longer has
// is far more often the fault of a registry, a mount or a script than it is meant, and clients act on it at once.
package guard

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"tributary/memstore"
	"tributary/resource"
)

// Settings say what is a mass loss. What is zero has its default.
//
// A loss is an object deleted, or an endpoint that a ServiceEntry has no longer. Losses are summed over a window, so that
// a directory that is removed file by file is one loss; what comes back meanwhile is none. A loss is held if it is more
// than Share of what there would be without it and more than Min, by the number of objects or by that of endpoints.
type Settings struct {
	Off     bool          // lets everything through
	Share   float64       // of all, from 0 to 1; default 0.5
	Min     int           // as many may always be lost; default 10
	Window  time.Duration // default 1 minute
	HoldFor time.Duration // after which a hold ends by itself; default: never, a person decides
}

// The defaults of Settings.
const (
	DefaultShare  = 0.5
	DefaultMin    = 10
	DefaultWindow = time.Minute
)

// Options configure a Guard. The zero value is ready to use.
type Options struct {
	Settings
	Log *slog.Logger // default: none
	// Remember is told, by Run, when a hold has begun, and with the zero time when none is left, for whoever keeps that
	// for Resume. It must not block.
	Remember func(since time.Time)
}

// Table is what is guarded: the table of one source, into which nobody else writes.
type Table interface {
	Apply(puts []*resource.Resource, deletes []resource.Key) ([]memstore.Change, memstore.Snapshot)
	MarkSynced()
	Snapshot() memstore.Snapshot
}

// Guard is a Table in front of another. What adds passes at once. When a loss is too large it is held: the objects stay
// in the table as they are, and the guard remembers what the source says of them. While it holds, all further losses join.
// A hold ends when a person releases it, after Settings.HoldFor, or when all of it has come back.
//
// The guard also keeps creation times: a put without one gets the time at which its key was first seen.
//
// All methods are safe for concurrent use.
type Guard struct {
	table    Table
	log      *slog.Logger
	remember func(since time.Time)
	now      func() time.Time
	wake     chan struct{} // for Run; holds one

	mu        sync.Mutex // held by who commits, so that commits are in order
	settings  Settings
	endpoints int    // in the table
	recent    window // the losses that were let through
	hold      *hold  // nil if there is none
	holds     int    // begun so far
	why       string // the hold that began last did
	how       ending // of the hold that ended last

	// Owned by Run.
	announced int // the hold of which the beginning was logged
	finished  int // the hold of which the end was logged
}

// New returns a guard of table and what it has already.
func New(table Table, opts Options) *Guard {
	g := &Guard{
		table: table, log: opts.Log, remember: opts.Remember, now: time.Now, wake: make(chan struct{}, 1),
		settings: opts.withDefaults(),
	}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	if g.remember == nil {
		g.remember = func(time.Time) {}
	}
	for r := range table.Snapshot().All() {
		g.endpoints += endpoints(r)
	}
	return g
}

func (s Settings) withDefaults() Settings {
	return Settings{
		Off: s.Off, Share: cmp.Or(s.Share, DefaultShare), Min: cmp.Or(s.Min, DefaultMin),
		Window: cmp.Or(s.Window, DefaultWindow), HoldFor: s.HoldFor,
	}
}

// Snapshot returns what is in the table.
func (g *Guard) Snapshot() memstore.Snapshot { return g.table.Snapshot() }

// Apply has the table follow, but for what is held. It returns what changed there.
func (g *Guard) Apply(puts []*resource.Resource, deletes []resource.Key) ([]memstore.Change, memstore.Snapshot) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before, now := g.table.Snapshot(), g.now()
	puts = firstSeen(puts, before, now)
	if g.settings.Off {
		return g.commit(puts, deletes, now)
	}
	g.recent.forget(now.Add(-g.settings.Window))
	losses := lossesOf(puts, deletes, before)
	if g.hold == nil {
		if why := g.tooMuch(losses, before.Len()); why != "" {
			g.begin(&hold{since: now, why: why})
		}
	}
	if g.hold == nil {
		return g.commit(puts, deletes, now)
	}
	held := make(map[resource.Key]bool, len(losses))
	for _, l := range losses {
		g.hold.add(l)
		held[l.key] = true
	}
	puts = slices.DeleteFunc(slices.Clone(puts), func(r *resource.Resource) bool { return held[r.Key()] })
	deletes = slices.DeleteFunc(slices.Clone(deletes), func(k resource.Key) bool { return held[k] })
	for _, r := range puts {
		g.hold.cancel(r.Key())
	}
	if g.hold.size() == 0 && !g.hold.resumed {
		g.end(cameBack)
	}
	return g.commit(puts, deletes, now)
}

// MarkSynced says that the source has been read as a whole: a hold that was resumed ends if nothing of it is lost.
func (g *Guard) MarkSynced() {
	g.mu.Lock()
	if h := g.hold; h != nil {
		h.resumed = false
		if h.size() == 0 {
			g.end(cameBack)
		}
	}
	g.mu.Unlock()
	g.table.MarkSynced()
}

// Resume takes up the hold of an earlier run, that began at since: what the source turns out to have lost is held, however
// little it is. It is called before the source is read.
func (g *Guard) Resume(since time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.settings.Off && g.hold == nil {
		g.begin(&hold{since: since, resumed: true, why: "it was held before the restart"})
	}
}

// Release lets go what is held, and says how much that was. It reports whether there was a hold.
func (g *Guard) Release() (objects, endpoints int, ok bool) { return g.release(released) }

// Configure changes the settings. If they are to let everything through, what is held goes, too.
func (g *Guard) Configure(s Settings) {
	g.mu.Lock()
	g.settings = s.withDefaults()
	g.mu.Unlock()
	if s.Off {
		g.release(released)
	}
	g.ring() // the end of the hold may be another
}

func (g *Guard) release(how ending) (objects, endpoints int, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.hold
	if h == nil {
		return 0, 0, false
	}
	puts, deletes := h.desired()
	g.end(how)
	g.commit(puts, deletes, g.now())
	g.recent = window{} // what was lost was meant to be
	return h.objects, h.endpoints, true
}

// begin starts a hold. The caller holds mu.
func (g *Guard) begin(h *hold) {
	g.hold, g.why = h, h.why
	g.holds++
	g.ring()
}

// end ends the hold. The caller holds mu.
func (g *Guard) end(how ending) {
	g.hold, g.how = nil, how
	g.ring()
}

func (g *Guard) ring() {
	select {
	case g.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// commit applies, and enters the losses in the window. The caller holds mu.
func (g *Guard) commit(puts []*resource.Resource, deletes []resource.Key, now time.Time) ([]memstore.Change, memstore.Snapshot) {
	changes, after := g.table.Apply(puts, deletes)
	for _, c := range changes {
		was, is := endpoints(c.Old), endpoints(c.New)
		g.endpoints += is - was
		if !g.settings.Off {
			g.recent.note(c.Key(), c.New == nil, was, is, now)
		}
	}
	return changes, after
}

// tooMuch says why losses, on top of the recent ones and of a table of size objects, are to be held, or nothing.
func (g *Guard) tooMuch(losses []loss, size int) string {
	if len(losses) == 0 {
		return ""
	}
	objects, ends := g.recent.objects, g.recent.endpoints
	size, all := size+objects, g.endpoints+ends
	for _, l := range losses {
		if l.desired == nil {
			objects++
		}
		ends += l.endpoints
	}
	within := func(what string, lost, of int) string {
		return fmt.Sprintf("%d of %d %s would go within %s, which is more than %d and more than %g %%",
			lost, of, what, g.settings.Window, g.settings.Min, g.settings.Share*100)
	}
	switch {
	case g.exceeds(objects, size):
		return within("objects", objects, size)
	case g.exceeds(ends, all):
		return within("endpoints", ends, all)
	}
	return ""
}

func (g *Guard) exceeds(lost, of int) bool {
	return lost > g.settings.Min && float64(lost) > g.settings.Share*float64(of)
}

// firstSeen gives those of puts that have no creation time that of the object in the table, or now.
func firstSeen(puts []*resource.Resource, before memstore.Snapshot, now time.Time) []*resource.Resource {
	stamped := slices.Clone(puts)
	for i, r := range stamped {
		if !r.Created().IsZero() {
			continue
		}
		if old := before.Get(r.Key()); old == nil || old.Created().IsZero() {
			stamped[i] = r.WithCreated(now.UTC().Truncate(time.Second))
		}
	}
	return stamped
}
