package xds

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Group is collections that change together: a commit to several of them becomes visible at once. It is safe for
// concurrent use. One commit runs at a time, and readers never wait for commits.
type Group struct {
	Log *slog.Logger // of errors in commits; slog.Default if nil; set it before the first commit

	debounce Debounce

	commits sync.Mutex // held during a commit

	shown atomic.Pointer[cut] // of the types that depend on each other

	mu     sync.Mutex               // held while shown and Collection.shown are replaced
	hidden map[*Collection]struct{} // with states that are not shown yet
	timer  *time.Timer              // non-nil while an announcement is due
	oldest time.Time                // of the commits that wait for the timer
}

// cut is the states of the collections of a group, of types with a rank, at one moment between commits.
type cut map[*Collection]*state

// Debounce shows a commit to clients when no other commit has followed for Quiet, and at the latest after Max. Zero
// shows it at once. Until then, clients get the previous state.
type Debounce struct{ Quiet, Max time.Duration }

// NewGroup returns a group without collections.
func NewGroup(debounce Debounce) *Group {
	g := &Group{debounce: debounce, hidden: make(map[*Collection]struct{})}
	g.shown.Store(&cut{})
	return g
}

// Collection adds an empty collection to the group. Clients get it after its MarkSynced is called.
func (g *Group) Collection(typ Type) *Collection {
	collection := &Collection{typ: typ, group: g, wakeups: make(map[wakeup]int)}
	empty := &state{revision: 1}
	empty.version = empty.sum.String()
	g.mu.Lock()
	defer g.mu.Unlock()
	collection.current.Store(empty)
	g.hidden[collection] = struct{}{}
	g.show()
	return collection
}

// Apply makes commits to collections of the group, all at once, and reports whether they changed anything. It panics if
// a collection is of another group.
func (g *Group) Apply(commits map[*Collection]*Commit) (changed bool) {
	changed, reuses := g.apply(commits)
	g.warn(reuses)
	return changed
}

func (g *Group) apply(commits map[*Collection]*Commit) (changed bool, reuses []reuse) {
	g.commits.Lock()
	defer g.commits.Unlock()
	next := make(map[*Collection]*state, len(commits))
	for collection, commit := range commits {
		if collection.group != g {
			panic("xds: commit to a collection of another group")
		}
		previous := cmp.Or(collection.ownEntries, collection.current.Load())
		successor := collection.after(previous, commit)
		if reused := collection.reused(commit, previous, successor); reused.count > 0 {
			reuses = append(reuses, reused)
		}
		if successor != previous {
			next[collection] = successor
		}
	}
	g.overlay(next, commits)
	if len(next) == 0 {
		return false, reuses
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for c, successor := range next {
		c.current.Store(successor)
		g.hidden[c] = struct{}{}
	}
	g.announce()
	return true, reuses
}

// announce shows the hidden states as soon as the debounce allows; g.mu is held.
func (g *Group) announce() {
	if g.debounce.Quiet <= 0 {
		g.show()
		return
	}
	now := time.Now()
	if g.timer == nil {
		g.oldest = now
		g.timer = time.AfterFunc(g.debounce.Quiet, func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.show()
		})
		return
	}
	wait := g.debounce.Quiet
	if g.debounce.Max > 0 {
		wait = min(wait, g.debounce.Max-now.Sub(g.oldest))
	}
	if g.timer.Stop() { // else the timer has fired and shows this commit too
		g.timer.Reset(max(wait, 0))
	}
}

// Flush ends the debounce of the commits that wait for it: they take effect at once.
func (g *Group) Flush() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.hidden) > 0 {
		g.show()
	}
}

// show makes the hidden states visible, and wakes the subscribed streams; g.mu is held.
func (g *Group) show() {
	if g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
	next := maps.Clone(*g.shown.Load())
	for collection := range g.hidden {
		collection.shown.Store(collection.current.Load())
		delete(next, collection)
		if collection.typ.Rank > 0 && collection.Synced() {
			next[collection] = collection.current.Load()
		}
	}
	g.shown.Store(&next)
	for c := range g.hidden {
		c.notify()
	}
	clear(g.hidden)
}

// Overlay adds a collection to the group. It has the entries of base, a collection of the group that is no overlay, and
// entries of its own. Commits apply to its own entries, which replace those of the same name. It is synced when base
// is. Call Flush after the first commit, before a stream has the collection.
func (g *Group) Overlay(base *Collection) *Collection {
	collection := &Collection{typ: base.typ, group: g, base: base, ownEntries: initialState, wakeups: make(map[wakeup]int)}
	g.commits.Lock()
	defer g.commits.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	collection.current.Store(base.current.Load().detached())
	collection.shown.Store(collection.current.Load())
	collection.synced.Store(base.Synced())
	put(&base.overlays, collection, struct{}{})
	g.hidden[collection] = struct{}{}
	return collection
}

// Drop removes an unused overlay from the group.
func (g *Group) Drop(collection *Collection) {
	g.commits.Lock()
	defer g.commits.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(collection.base.overlays, collection)
	collection.synced.Store(false)
	g.hidden[collection] = struct{}{} // so that the next cut does not have it
}

// overlay adds to the next states of collections those of the overlays that change with them; g.commits is held.
func (g *Group) overlay(next map[*Collection]*state, commits map[*Collection]*Commit) {
	changed := make(map[*Collection]bool)
	for collection, successor := range next {
		if collection.base != nil {
			collection.ownEntries = successor
			changed[collection] = true
		}
		for overlay := range collection.overlays {
			changed[overlay] = true
		}
	}
	for collection := range changed {
		base, previous, commit := cmp.Or(next[collection.base], collection.base.current.Load()), collection.current.Load(),
			*cmp.Or(commits[collection.base], commits[collection])
		puts, removed := compare(previous, base.withPuts(slices.Collect(collection.ownEntries.entries())))
		next[collection] = collection.after(previous,
			&Commit{Put: puts, Remove: names(removed), Revision: commit.Revision, Since: commit.Since})
	}
}
