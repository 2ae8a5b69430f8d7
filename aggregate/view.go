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
)

// Source is one of the stores that a View merges.
type Source struct {
	Name   string
	Reader memstore.Reader
	// Precedence is the priority of a source for a key: the highest number wins, then the first in order.
	Precedence int
	// Optional: the view can be complete without this source.
	Optional bool
	// Merge, if set, joins the source's ServiceEntries with those of other such sources for the same host.
	Merge *Merge
}

// View is the merged content of a set of sources, kept current by Run. It implements memstore.Reader, so everything
// that reads a store can read a view. All methods are safe for concurrent use.
//
// It is synced when every required source has been read once and is merged. It stays so when a source is added later:
// the content from before stays served until that source is read.
//
// A commit of the view never splits a commit of a source.
type View struct {
	memstore.Reader // table

	wanted       atomic.Pointer[configuration] // of the last SetSources
	reconfigured chan struct{}                 // wakes the loop for wanted; holds one
	beats        memstore.Beat                 // answered by the loop

	// Written by the loop, read by all.
	table     memstore.Table // the merged content
	shadowed  memstore.Table // for each key with losers, the first of them
	published atomic.Pointer[state]

	indexMu sync.Mutex
	index   conflicts.Index // guarded by indexMu; updated from table before each use

	// Owned by the loop.
	configured *configuration // the one in use
	sources    []*sourceState // of configured, in order of precedence
	transition transition     // from the sources before configured
	layers     []layer        // see stack
	pool       pool           // of the sources with Merge; it also guards the data of explanations
}

// configuration is a set of sources.
type configuration struct {
	sources      []Source // in order of precedence
	markSwitched func()   // closes the channel that SetSources returned
}

// state is the result of a round of the loop. It is at least as new as the merged table.
type state struct {
	sources  []SourceStatus // in order of precedence
	layers   []layer        // see View.stack
	shadowed memstore.Snapshot
}

// New returns a view of sources, empty until Run.
func New(sources ...Source) *View {
	view := &View{reconfigured: make(chan struct{}, 1), beats: make(memstore.Beat)}
	view.transition.namesRetired = make(map[string]bool)
	view.Reader = &view.table
	view.published.Store(new(state))
	view.SetSources(sources...)
	return view
}

// SetSources replaces the sources, and returns at once. Run applies the change in one commit. A source in both sets, by
// its Reader, goes on undisturbed. While a required source is unsynced, a key keeps its old value unless a synced
// source above it has the key. Run closes switched when it serves no content of an earlier set; after another
// SetSources, it may stay open.
func (v *View) SetSources(sources ...Source) (switched <-chan struct{}) {
	closed := make(chan struct{})
	next := &configuration{slices.Clone(sources), sync.OnceFunc(func() { close(closed) })}
	slices.SortStableFunc(next.sources, func(a, b Source) int { return cmp.Compare(b.Precedence, a.Precedence) })
	v.wanted.Store(next)
	select {
	case v.reconfigured <- struct{}{}:
	default: // already woken
	}
	return closed
}

// Run merges until ctx ends, and returns ctx's error. It may be called once.
func (v *View) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		v.await(ctx, v.merge())
	}
	return ctx.Err()
}

// Alive returns once Run has answered, or with the error of ctx.
func (v *View) Alive(ctx context.Context) error { return v.beats.Await(ctx) }

// await returns when ctx ends, the set of sources changes, or one of changes is closed.
func (v *View) await(ctx context.Context, changes []<-chan struct{}) {
	cases := []reflect.SelectCase{receive(v.beats), receive(ctx.Done()), receive(v.reconfigured)}
	for _, ch := range changes {
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
