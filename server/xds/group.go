package xds

import (
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// Group is collections that change together: a commit to several of them is seen whole or not at all. It is safe for
// concurrent use; commits take their turns, and readers never wait for them.
type Group struct {
	Log *slog.Logger // for what is wrong with commits; slog.Default if nil; to be set before the first commit

	debounce Debounce

	commits sync.Mutex // held by the one who commits

	shown atomic.Pointer[cut] // what clients see of the types that depend on each other

	mu     sync.Mutex // held while shown, and those of the collections, are replaced
	hidden map[*Collection]struct{}
	timer  *time.Timer // non-nil while an announcement is due
	oldest time.Time   // of the commits that wait for it
}

// cut is the states that the collections of a group had at one moment between commits, as far as their types have a rank.
type cut map[*Collection]*state

// Debounce delays the announcement of a commit until none followed for Quiet, but by no more than Max. Zero announces at
// once. Until then clients see, and are answered from, what was there before.
type Debounce struct{ Quiet, Max time.Duration }

// NewGroup returns a group without collections.
func NewGroup(debounce Debounce) *Group {
	g := &Group{debounce: debounce, hidden: make(map[*Collection]struct{})}
	g.shown.Store(&cut{})
	return g
}

// Collection adds an empty collection to the group, of which nothing is sent until its MarkSynced is called.
func (g *Group) Collection(typ Type) *Collection {
	c := &Collection{typ: typ, group: g, bells: make(map[bell]int)}
	s := &state{revision: 1}
	s.version = s.sum.String()
	g.mu.Lock()
	defer g.mu.Unlock()
	c.current.Store(s)
	g.hidden[c] = struct{}{}
	g.show()
	return c
}

// Apply makes commits to collections of the group, all at once, and reports whether they changed anything. It panics if one
// of them is not of the group.
func (g *Group) Apply(commits map[*Collection]*Commit) (changed bool) {
	changed, found := g.apply(commits)
	g.warn(found)
	return changed
}

func (g *Group) apply(commits map[*Collection]*Commit) (changed bool, found []reuse) {
	g.commits.Lock()
	defer g.commits.Unlock()
	next := make(map[*Collection]*state, len(commits))
	for c, commit := range commits {
		if c.group != g {
			panic("xds: commit to a collection of another group")
		}
		old, s := c.current.Load(), c.after(commit)
		if r := c.reused(commit, old, s); r.count > 0 {
			found = append(found, r)
		}
		if s != old {
			next[c] = s
		}
	}
	if len(next) == 0 {
		return false, found
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for c, s := range next {
		c.current.Store(s)
		g.hidden[c] = struct{}{}
	}
	g.announce()
	return true, found
}

// announce shows what is hidden as soon as the debounce allows; g.mu is held.
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
	if g.timer.Stop() { // else it is about to announce this commit too
		g.timer.Reset(max(wait, 0))
	}
}

// show lets clients see what is hidden, and wakes the streams that are concerned; g.mu is held. Waking never waits.
func (g *Group) show() {
	if g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
	next := maps.Clone(*g.shown.Load())
	for c := range g.hidden {
		c.shown.Store(c.current.Load())
		if c.typ.Rank > 0 && c.Synced() {
			next[c] = c.current.Load()
		}
	}
	g.shown.Store(&next)
	for c := range g.hidden {
		c.ring()
	}
	clear(g.hidden)
}
