package sources

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"tributary/internal/intake"
	"tributary/internal/worker"
	"tributary/sources/lastgood"
)

// runner runs one source, again and again.
type runner struct {
	sink       *sink
	table      Table
	memory     *lastgood.Store // or nil
	log        *slog.Logger
	newBackOff func() backoff.BackOff
	pool       *intake.Pool
	rereading  bool // it began with what other settings had made; read-only once it runs

	// Guarded by the supervisor's mu. The loop reads source, which changes only while there is no loop.
	source  Source
	running *worker.Group // the loop; nil if there never was one
	keepers *worker.Group // those who look after what the source published
	leaving bool          // being changed or removed: Reconfigure starts it again, or not

	mu        sync.Mutex
	address   string
	restarts  int
	lastError string
}

func newRunner(spec Spec, opts Options) *runner {
	log := opts.Log.With("source", spec.Name)
	if spec.Memory != nil {
		spec.Memory.Rename(spec.Name)
	}
	kept, err := restore(spec)
	if err != nil {
		log.Error("what the source published last is not known", "err", err)
	}
	r := &runner{
		address: spec.Address, source: spec.Source, table: spec.Table, memory: spec.Memory,
		sink: newSink(spec, opts, kept, opts.Log), newBackOff: opts.NewBackOff, pool: opts.pool,
		rereading: spec.Former != nil,
	}
	r.log = r.sink.log
	if kept != nil {
		r.sink.resume(kept)
		if spec.Former != nil {
			r.sink.reread()
		}
		log.Info("what the source published last is served until it has been read", "objects", len(kept.Resources), "stored", kept.Stored)
	}
	return r
}

func (r *runner) name() string { return r.sink.source.String() }

// start starts the loop. The caller holds the supervisor's mu, and calls stop to join it.
func (r *runner) start(ctx context.Context) {
	if r.keepers == nil {
		r.attend(context.WithoutCancel(ctx)) // they end after the source, to see its last
	}
	r.running, ctx = worker.New(ctx)
	r.running.Go(func() { r.loop(ctx) })
}

// stop ends the loop and waits for it.
func (r *runner) stop() {
	if r.running != nil {
		r.running.Stop()
	}
}

// attend starts those who look after what the source published: the guard, and the memory. The caller holds the
// supervisor's mu, and calls dismiss to join them.
func (r *runner) attend(ctx context.Context) {
	r.keepers, ctx = worker.New(ctx)
	r.keepers.Go(func() { r.restart(ctx, "guard", func() { r.sink.guard.Run(ctx) }) })
	if r.memory != nil {
		r.keepers.Go(func() { r.restart(ctx, "memory", func() { r.remember(ctx) }) })
	}
}

// remember keeps what the source publishes. What other settings had made is kept where it is, until it was read by these.
func (r *runner) remember(ctx context.Context) {
	if r.rereading {
		select {
		case <-ctx.Done():
			return
		case <-r.sink.read:
		}
	}
	r.memory.Run(ctx, r.table)
}

// restart runs what looks after the source until ctx ends, also if it panics.
func (r *runner) restart(ctx context.Context, what string, run func()) {
	for {
		err := worker.Do(func() error { run(); return nil })
		if err == nil {
			return
		}
		r.logPanic(what, err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(lastRestart):
		}
	}
}

// logPanic logs err with the place where it was, if it is a panic.
func (r *runner) logPanic(where string, err error) {
	if p, ok := errors.AsType[*worker.Panic](err); ok {
		r.log.Error("source panicked", "where", where, "err", err, "stack", string(p.Stack))
	}
}

// dismiss ends them and waits for them; what was published is then on disk, if the disk allows.
func (r *runner) dismiss() {
	if r.keepers != nil {
		r.keepers.Stop()
	}
}

// swap exchanges the source, its name and its settings. If the source is another, there is no loop.
func (r *runner) swap(spec Spec) {
	if !identical(r.source, spec.Source) {
		r.source = spec.Source
	}
	r.sink.rename(spec.Name)
	if r.memory != nil {
		r.memory.Rename(spec.Name)
	}
	r.sink.configure(spec)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.address, r.lastError = spec.Address, ""
}

func (r *runner) loop(ctx context.Context) {
	policy := r.newBackOff()
	for {
		started := time.Now()
		err := r.runOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(started) > lastRestart {
			policy.Reset()
		}
		wait := policy.NextBackOff()
		if wait == backoff.Stop {
			wait = lastRestart
		}
		r.failed(err, wait)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// runOnce runs the source until it ends, be it by a panic, there or in one of its workers.
func (r *runner) runOnce(ctx context.Context) error {
	r.sink.forgetLeftOut()
	err := worker.Do(func() error { return r.source.Run(r.pool.Source(ctx), r.sink) })
	if err == nil {
		return errors.New("the source ended though nobody asked it to")
	}
	r.logPanic("source", err)
	return err
}

// failed notes that Run ended with err. The state is what the source said of itself if that explains it.
func (r *runner) failed(err error, wait time.Duration) {
	r.mu.Lock()
	r.restarts++
	again := r.lastError == err.Error()
	r.lastError = err.Error()
	r.mu.Unlock()

	var st Status
	r.sink.describe(&st, false)
	level := slog.LevelDebug
	if !again {
		level = slog.LevelWarn
	}
	r.log.Log(context.Background(), level, "source failed, it will be restarted", "err", err, "wait", wait)
	if st.State != Denied {
		st.State = Unreachable
	}
	r.sink.Report(Health{State: st.State, Message: err.Error()})
}

// status returns what there is to know, the lists only if asked for.
func (r *runner) status(lists bool) Status {
	st := Status{Name: r.name()}
	r.mu.Lock()
	st.Address, st.Restarts, st.LastError = r.address, r.restarts, r.lastError
	r.mu.Unlock()
	r.sink.describe(&st, lists)
	if r.memory != nil {
		kept := r.memory.Status()
		st.Kept = &kept
	}
	return st
}
