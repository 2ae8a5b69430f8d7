// Package aggregate merges the stores of all sources into one view. For a key that several sources have, the source of
// the highest precedence wins and the others are shadowed; when the winner goes, the next one takes its place in the same
// commit. The package also tells why an object is what it is, and finds the conflicts that no key shows.
package aggregate

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"tributary/aggregate/conflicts"
	"tributary/memstore"
	"tributary/resource"
)

// Source is one of the stores that a View merges.
type Source struct {
	Name   string
	Reader memstore.Reader
	// Precedence decides who wins a key: the higher number, and the earlier source where it is equal.
	Precedence int
	// Optional says that the view can be complete without this source.
	Optional bool
	// Ranked says that its objects have the rank by which clients know them already.
	Ranked bool
	// Merge says that the ServiceEntries of a host are made one with those of the other sources that have it. Nil says that
	// they are not.
	Merge *Merge
}

// View is the merged content of a set of sources, kept current by Run. It implements memstore.Reader, so everything that
// reads a store can read a view. All its methods are safe for concurrent use.
//
// One commit of the view holds whole commits of the sources, and as many of them as there are at the time.
type View struct {
	wanted       atomic.Pointer[configuration] // what SetSources said last
	reconfigured chan struct{}                 // wakes the loop for wanted; holds one
	beats        memstore.Beat                 // answered by the loop

	// Written by the loop, read by all.
	table     memstore.Table // what is merged
	shadowed  memstore.Table // for each key with losers, the first of them
	published atomic.Pointer[state]

	indexMu sync.Mutex
	index   conflicts.Index // guarded by indexMu; follows table whenever it is asked

	// Owned by the loop.
	configured *configuration    // what sources were made of
	alone      *sync.Once        // closes configured.alone
	sources    []*followed       // in order of precedence
	retired    []*sourceState    // removed, and not yet made up for
	hadObjects map[string]bool   // the names of those that had anything, also if others have all of it since
	earlier    *memstore.Table   // what was served when sources changed; nil once all of these are read
	pooled     memstore.Snapshot // what of that the pool had made
	layers     []layer           // what all of them say
	pool       pool              // of the sources with Merge; it also guards what explanations read
}

// configuration is a set of sources.
type configuration struct {
	sources []Source      // in order of precedence
	alone   chan struct{} // closed by the loop once it is all that counts
}

// state is what the loop publishes in each round: what is merged. It is at least as new as the merged table.
type state struct {
	sources  []SourceStatus // in order of precedence
	layers   []layer        // the same
	shadowed memstore.Snapshot
}

var _ memstore.Reader = (*View)(nil)

// New returns a view of sources, empty until Run.
func New(sources ...Source) *View {
	v := &View{reconfigured: make(chan struct{}, 1), beats: make(memstore.Beat), hadObjects: make(map[string]bool)}
	v.published.Store(new(state))
	v.SetSources(sources...)
	return v
}

// SetSources replaces the set of sources. A source that is in both sets, by its reader, is not disturbed, whatever its name;
// whatever changes by the switch does so in one commit. A key is as it was before for as long as a required source that is
// not synced could say otherwise: no source above it that is synced has the key. It returns at once; Run does the work, and
// closes alone when nothing of an earlier set is served any more. If SetSources is called again before, it may stay open.
func (v *View) SetSources(sources ...Source) (alone <-chan struct{}) {
	next := &configuration{slices.Clone(sources), make(chan struct{})}
	slices.SortStableFunc(next.sources, func(a, b Source) int { return cmp.Compare(b.Precedence, a.Precedence) })
	v.wanted.Store(next)
	select {
	case v.reconfigured <- struct{}{}:
	default: // already woken
	}
	return next.alone
}

// Begin has the view be what sources have now, before Run: what SetSources says next is a change of that.
func (v *View) Begin(sources ...Source) {
	v.SetSources(sources...)
	v.merge()
}

// Snapshot returns the merged state, in O(1).
func (v *View) Snapshot() memstore.Snapshot { return v.table.Snapshot() }

// Changes returns the keys changed since a revision; see memstore.Reader.
func (v *View) Changes(since memstore.Revision) ([]resource.Key, memstore.Snapshot, bool) {
	return v.table.Changes(since)
}

// Changed returns a channel that is closed by the next commit, or when Synced turns true.
func (v *View) Changed() <-chan struct{} { return v.table.Changed() }

// Synced says that every required source has been read once and is merged. It stays true when a source is added later:
// what was served before is served on until that source is read.
func (v *View) Synced() bool { return v.table.Synced() }

// Run merges until ctx ends, and returns ctx's error. It may be called once.
func (v *View) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		v.await(ctx, v.merge())
	}
	return ctx.Err()
}

// Alive returns when it is known that Run goes on, or with the error of ctx.
func (v *View) Alive(ctx context.Context) error { return v.beats.Await(ctx) }

// await returns when ctx ends, the set of sources changes, or one of the channels of news is closed.
func (v *View) await(ctx context.Context, news []<-chan struct{}) {
	cases := []reflect.SelectCase{receive(v.beats), receive(ctx.Done()), receive(v.reconfigured)}
	for _, ch := range news {
		cases = append(cases, receive(ch))
	}
	const beat = 0
	for chosen := beat; chosen == beat; {
		chosen, _, _ = reflect.Select(cases)
	}
}

func receive(ch <-chan struct{}) reflect.SelectCase {
	return reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ch)}
}

// Controller returns a new read-only controller over the view, so that handlers can follow it. The caller runs it.
func (v *View) Controller() *memstore.Controller { return memstore.NewController(v) }
