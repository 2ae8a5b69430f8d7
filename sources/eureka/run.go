package eureka

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"tributary/internal/words"
	"tributary/internal/worker"
	"tributary/sources"
	"tributary/sources/eureka/client"
	"tributary/sources/eureka/mapping"
	"tributary/sources/eureka/view"
	"tributary/sources/registry"
)

// run is one run of a source. All of it is owned by its loop.
type run struct {
	*Source
	sink     sources.Sink
	follower *follower
	state    *state
	started  bool      // something was read
	resync   time.Time // when everything is to be read again
	failures int       // in a row
	recalled note      // of an earlier run
	kept     []byte
	version  int // of the state at the last keep
}

// Run follows the Eureka and publishes its services until ctx ends.
func (s *Source) Run(ctx context.Context, sink sources.Sink) error {
	stop, err := s.counts.Register(s.settings.Registerer)
	if err != nil {
		return fmt.Errorf("register the metrics: %w", err)
	}
	defer stop()
	defer s.client.Close()
	r := &run{Source: s, sink: sink, state: newState(s.mapper, s.settings)}
	known := note{Marks: view.Marks{}}
	registry.RecallNote(sink, &known)
	r.follower = newFollower(s.client, s.counts, s.settings.Interval, known.Marks)
	r.state.recall(known, time.Now())
	r.recalled = known
	registry.Restore(sink, r.state.restore)
	r.state.Recall(known.Missing, time.Now())
	// A panic is a failure of the source.
	return worker.Do(func() error { return r.loop(ctx) })
}

func (r *run) loop(ctx context.Context) error {
	for ctx.Err() == nil {
		registry.Sleep(ctx, r.turn(ctx))
	}
	return ctx.Err()
}

// turn reads once, publishes the changes, and returns the pause until the next turn.
func (r *run) turn(ctx context.Context) time.Duration {
	now := time.Now()
	all := !now.Before(r.resync)
	reading, err := r.follower.next(ctx, all)
	now = time.Now()
	if err == nil {
		err = advance(ctx, r.follower, r.state, reading, now)
	}
	if ctx.Err() != nil {
		return 0
	}
	if err != nil {
		r.failures++
		if r.started && r.state.away.IsZero() {
			r.state.away = now
			r.state.version++
			r.keep()
		}
		if !r.started { // the next run has to know since when no server answers
			r.recalled.Away = r.state.away
			r.kept = registry.KeepNote(r.sink, r.recalled, r.kept)
		}
		r.sink.Report(sources.Health{State: registry.StateOf(err, client.ErrDenied), Message: err.Error()})
		// Random, so that not all tributaries return at once.
		return time.Duration(float64(r.settings.Interval<<min(r.failures-1, 2)) * (0.75 + rand.Float64()/2)) //nolint:gosec // no secret
	}
	r.failures = 0
	if all {
		r.resync = now.Add(r.settings.Resync)
	}
	if contents := r.state.Contents(now); len(contents) > 0 {
		_ = r.sink.ReplaceAll(contents) // what is refused is shown by the status, and not ours to mend
	}
	if !r.started {
		r.started = true
		r.sink.Synced()
	}
	r.keep()
	r.sink.Report(r.health())
	return min(r.settings.Interval, registry.Wait(r.state.Next(), now))
}

// shownOut is how many left-out instances the status names.
const shownOut = 3

// health returns the status of a source that can read.
func (r *run) health() sources.Health {
	var problems []string
	if out := r.state.out; len(out) > 0 {
		problems = append(problems, out[:min(len(out), shownOut)]...)
		if more := len(out) - shownOut; more > 0 {
			problems = append(problems, fmt.Sprintf("and %d more instances", more))
		}
	}
	held, elsewhere, here := r.state.held(r.follower.server)
	if elsewhere > 0 {
		problems = append(problems, fmt.Sprintf("%s at %s, and there are renewals at another server",
			words.Count(elsewhere, "instance expired", "instances expired"), r.follower.server))
	}
	if held > 0 {
		problems = append(problems, fmt.Sprintf("%s for %s at most, as the server was started anew, or is another one",
			registry.HeldText(held, r.state.HeldServices()), r.settings.Hold))
	}
	if len(problems) > 0 {
		return sources.Health{
			State: sources.Degraded, Message: strings.Join(problems, "; "), Unconfirmed: held + elsewhere,
		}
	}
	if services, _ := r.state.Services(); services == 0 {
		message := "there is no instance"
		if left := r.state.left; left > 0 {
			message = "none of " + words.Count(left, "application", "applications") + " is selected"
		}
		return sources.Health{State: sources.Healthy, Message: message}
	}
	if here > 0 {
		return sources.Health{State: sources.Healthy, Message: fmt.Sprintf("%s there, and not in the listing that %s has in its cache",
			words.Count(here, "instance is", "instances are"), r.follower.server)}
	}
	return sources.Health{State: sources.Healthy}
}

// note is what a run keeps for the next one, so that a restart or reload drops no more than a run that goes on.
type note struct {
	registry.Note[mapping.ID]

	Marks  view.Marks       `json:"marks"`
	Doubts map[string]doubt `json:"lost,omitempty"`
}

// keep keeps a note for the next run, if the state has changed.
func (r *run) keep() {
	if r.version != r.state.version {
		r.version = r.state.version
		holds := r.state.NoteOf(registry.Suspicion{Away: r.state.away})
		r.kept = registry.KeepNote(r.sink, note{holds, r.follower.signs(), r.state.doubts(r.follower.server)}, r.kept)
	}
}
