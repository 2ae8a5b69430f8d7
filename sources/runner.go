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
	name       string
	sink       *sink
	table      Table
	lastGood   *lastgood.Store // or nil
	log        *slog.Logger
	newBackOff func() backoff.BackOff
	pool       *intake.Pool
	isReread   bool // it began with the state of other settings; read-only once it runs

	// Guarded by the supervisor's mu. The loop reads source, which changes only while there is no loop.
	source     Source
	running    *worker.Group // the loop; nil if there never was one
	background *worker.Group // the guard and the store of last good objects
	stopping   bool          // Reconfigure makes, changes or removes it

	mu        sync.Mutex
	address   string
	restarts  int
	lastError string
}

// newRunner makes the runner of a source that does not run yet. With restore, it begins with the stored objects.
func newRunner(spec Spec, opts Options, restore bool) *runner {
	runner := &runner{
		name: spec.Name, source: spec.Source, table: spec.Table, lastGood: spec.LastGood,
		newBackOff: opts.NewBackOff, pool: opts.pool, stopping: true, log: opts.Log.With("source", spec.Name),
	}
	var restored *lastgood.State
	if spec.LastGood != nil {
		spec.LastGood.SetReading(spec.Reading)
		if restore {
			restored = runner.restore()
		}
	}
	runner.sink = newSink(spec, opts, restored, runner.log)
	return runner
}

// start starts the loop. The caller holds the supervisor's mu, and calls stop to join it.
func (r *runner) start(ctx context.Context) {
	if r.background == nil {
		r.startBackground(context.WithoutCancel(ctx)) // they end after the source, to store its last objects
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

// startBackground starts the guard and the store of last good objects. The caller holds the supervisor's mu, and calls
// stopBackground to join them.
func (r *runner) startBackground(ctx context.Context) {
	r.background, ctx = worker.New(ctx)
	r.background.Go(func() { r.runBackground(ctx, "guard", func() { r.sink.endHolds(ctx) }) })
	if r.lastGood != nil {
		r.background.Go(func() { r.runBackground(ctx, "memory", func() { r.saveChanges(ctx) }) })
	}
}

// saveChanges stores the published objects. The stored objects of other settings stay until the source was read by
// these, without the losses that were released meanwhile.
func (r *runner) saveChanges(ctx context.Context) {
	if r.isReread {
		if r.lastGood.RunUnread(ctx, r.table, r.sink.firstRead); ctx.Err() != nil {
			return
		}
	}
	r.lastGood.Run(ctx, r.table)
}

// runBackground runs a background duty until ctx ends, and restarts it after a panic.
func (r *runner) runBackground(ctx context.Context, duty string, run func()) {
	for {
		err := worker.Do(func() error { run(); return nil })
		if err == nil {
			return
		}
		r.logPanic(duty, err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(lastRestart):
		}
	}
}

// logPanic logs err with its stack if it is a panic.
func (r *runner) logPanic(place string, err error) {
	if p, ok := errors.AsType[*worker.Panic](err); ok {
		r.log.Error("source panicked", "where", place, "err", err, "stack", string(p.Stack))
	}
}

// stopBackground ends the background work and waits for it. All published objects are on disk then, if the disk allows.
func (r *runner) stopBackground() {
	if r.background != nil {
		r.background.Stop()
	}
}

// configure applies the settings of another spec of the same source.
func (r *runner) configure(spec Spec) {
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
		r.noteFailure(err, wait)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// runOnce runs the source until it ends or panics, also in one of its workers.
func (r *runner) runOnce(ctx context.Context) error {
	r.sink.forgetLeftOut()
	err := worker.Do(func() error { return r.source.Run(r.pool.Source(ctx), r.sink) })
	if err == nil {
		return errors.New("source stopped unexpectedly")
	}
	r.logPanic("source", err)
	return err
}

// noteFailure notes that Run ended with err. A denied source stays denied; others are unreachable.
func (r *runner) noteFailure(err error, wait time.Duration) {
	r.mu.Lock()
	r.restarts++
	isRepeated := r.lastError == err.Error()
	r.lastError = err.Error()
	r.mu.Unlock()

	var status Status
	r.sink.fillStatus(&status, withoutLists)
	level := slog.LevelDebug
	if !isRepeated {
		level = slog.LevelWarn
	}
	r.log.Log(context.Background(), level, "source failed, it will be restarted", "err", err, "wait", wait)
	if status.State != Denied {
		status.State = Unreachable
	}
	r.sink.Report(Health{State: status.State, Message: err.Error()})
}

// The statuses with and without their lists.
const (
	withLists    = true
	withoutLists = false
)

// status returns the status, with or without lists.
func (r *runner) status(lists bool) Status {
	status := Status{Name: r.name}
	r.mu.Lock()
	status.Address, status.Restarts, status.LastError = r.address, r.restarts, r.lastError
	r.mu.Unlock()
	r.sink.fillStatus(&status, lists)
	if r.lastGood != nil {
		stored := r.lastGood.Status()
		status.Stored = &stored
	}
	return status
}
