package sourcetest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/guard"
)

// patience is how long the suite waits for something that must happen. It is no measure of speed.
const patience = 60 * time.Second

// name is that of the source under test.
const name = "under-test"

// rig has a source under test in a supervisor, as the program runs it.
type rig struct {
	Harness

	t          *testing.T
	table      *recorder
	supervisor *sources.Supervisor
	tap        *tap
	stop       func() // once; joins everything
	marks      int    // revisions of the mark
}

// unguarded runs sources without the guard: publications and withdrawals are under test, holds of the guard are not.
var unguarded = guard.Settings{Off: true}

// newRig makes a rig that does not run yet.
func newRig(t *testing.T, h Harness) *rig {
	return &rig{Harness: h, t: t, table: &recorder{}}
}

// start runs the source.
func (b *rig) start() {
	b.t.Helper()
	b.supervisor = sources.NewSupervisor(sources.Options{
		NewBackOff: func() backoff.BackOff { return backoff.NewConstantBackOff(5 * time.Millisecond) },
	})
	b.tap = newTap(b.Source())
	require.NoError(b.t, b.supervisor.Reconfigure([]sources.Spec{{
		Name: name, Source: b.tap, Table: b.table,
		Guard: unguarded,
	}}))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.supervisor.Run(ctx) }()
	b.stop = sync.OnceFunc(func() {
		b.t.Helper()
		cancel()
		select {
		case err := <-ended:
			require.NoError(b.t, err)
		case <-time.After(patience):
			require.Fail(b.t, "the source does not end with its context")
		}
		require.ErrorIs(b.t, b.tap.last(), context.Canceled, "Run must return the error of its context")
	})
	b.t.Cleanup(b.stop)
}

// restart ends the source and runs a new one on the published state.
func (b *rig) restart(meanwhile func()) {
	b.t.Helper()
	// An idle source stands in while the system changes.
	require.NoError(b.t, b.supervisor.Reconfigure([]sources.Spec{{
		Name: name, Table: b.table, Source: idle{},
		Guard: unguarded,
	}}))
	require.ErrorIs(b.t, b.tap.last(), context.Canceled, "Run must return the error of its context")
	meanwhile()
	b.tap = newTap(b.Source())
	require.NoError(b.t, b.supervisor.Reconfigure([]sources.Spec{{
		Name: name, Table: b.table, Source: b.tap,
		Guard: unguarded,
	}}))
}

// await waits until ok holds.
func (b *rig) await(condition string, ok func() bool) {
	b.t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			require.Fail(b.t, "not in time", "%s; status: %+v", condition, b.status())
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func (b *rig) awaitSync() {
	b.t.Helper()
	b.await("it is synced", b.table.Synced)
}

// awaitObject waits until the object called name has a version other than those.
func (b *rig) awaitObject(name string, except ...string) (version string) {
	b.t.Helper()
	b.await(name+" is there", func() bool {
		version = b.version(name)
		return version != "" && !slices.Contains(except, version)
	})
	return version
}

func (b *rig) awaitGone(name string) {
	b.t.Helper()
	b.await(name+" is gone", func() bool { return b.version(name) == "" })
}

func (b *rig) awaitState(states ...sources.State) {
	b.t.Helper()
	b.await("its state is as expected", func() bool { return slices.Contains(states, b.status().State) })
}

// version returns the version of the object with that name, or "".
func (b *rig) version(name string) string {
	if r := b.table.Snapshot().Get(b.Key(name)); r != nil {
		return r.Version()
	}
	return ""
}

func (b *rig) status() sources.Status { return b.supervisor.Status()[0] }

// neverDeleted fails the test if the object called name was ever deleted.
func (b *rig) neverDeleted(names ...string) {
	b.t.Helper()
	for _, n := range names {
		require.Zero(b.t, b.table.count(b.Key(n), memstore.Deleted), "%s must never have been missing", n)
	}
}

// recorder is a table that records its changes.
type recorder struct {
	memstore.Table

	mu         sync.Mutex
	changes    []memstore.Change
	syncedWith int
}

// Apply implements sources.Table.
func (r *recorder) Apply(puts []*resource.Resource, deletes []resource.Key) ([]memstore.Change, memstore.Snapshot) {
	r.mu.Lock() // a reader of the table can count its changes
	defer r.mu.Unlock()
	changes, now := r.Table.Apply(puts, deletes)
	r.changes = append(r.changes, changes...)
	return changes, now
}

// MarkSynced implements sources.Table.
func (r *recorder) MarkSynced() {
	r.mu.Lock()
	r.syncedWith = r.Snapshot().Len()
	r.mu.Unlock()
	r.Table.MarkSynced()
}

// count counts the events of a key.
func (r *recorder) count(key resource.Key, event memstore.Event) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, c := range r.changes {
		if c.Key() == key && c.Event() == event {
			n++
		}
	}
	return n
}

// tap records the results of Run.
type tap struct {
	sources.Source
	ended chan error
}

func newTap(s sources.Source) *tap { return &tap{s, make(chan error, 1)} }

// Run implements sources.Source.
func (t *tap) Run(ctx context.Context, sink sources.Sink) error {
	err := t.Source.Run(ctx, sink)
	select {
	case <-t.ended: //nolint:errcheck // of the run before
	default:
	}
	t.ended <- err
	return err
}

// last returns the last result of Run. If it never ran, that is as if it had ended well.
func (t *tap) last() error {
	select {
	case err := <-t.ended:
		t.ended <- err
		return err
	default:
		return context.Canceled
	}
}

// idle is a source without objects.
type idle struct{}

// Run implements sources.Source.
func (idle) Run(ctx context.Context, _ sources.Sink) error {
	<-ctx.Done()
	return ctx.Err()
}
