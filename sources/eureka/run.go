package eureka

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"tributary/internal/words"
	"tributary/internal/worker"
	"tributary/sources"
	"tributary/sources/eureka/client"
	"tributary/sources/eureka/wire"
	"tributary/sources/registry"
)

// serverAPI reads servers. See client.Client.
type serverAPI interface {
	Servers() []string
	Listing(ctx context.Context, server string, previous client.Sum) (*client.Reply, error)
	Changes(ctx context.Context, server string, previous client.Sum) (*client.Reply, error)
}

// run is one run of a source. Its loop owns it.
type run struct {
	*Source
	state    *state
	server   int           // the index of the followed server
	listing  *client.Reply // its last answers
	changes  *client.Reply
	returns  time.Time // when to try the first server again
	failures int       // polls in a row that failed
	synced   bool
	health   sources.Health // the last one
}

// Run polls the Eureka and publishes its services until ctx ends.
func (s *Source) Run(ctx context.Context, sink sources.Sink) error {
	unregister, err := s.counts.Register(s.settings.Registerer)
	if err != nil {
		return fmt.Errorf("register the metrics: %w", err)
	}
	defer unregister()
	current := s.begin(sink, time.Now())
	return worker.Do(func() error { // a panic is a failure of the source
		registry.Publish(ctx, sink, nil, 0, func(now time.Time) registry.Batch { return current.poll(ctx, now) })
		return ctx.Err()
	})
}

// begin returns a run with the content and note of the previous one.
func (s *Source) begin(sink sources.Sink, now time.Time) *run {
	current := &run{Source: s, state: newState(s.mapper, s.settings), listing: &client.Reply{}, changes: noChanges}
	registry.Restore(sink, current.state.restore)
	current.state.suspicion = current.state.Resume(sink, now)
	return current
}

var noChanges = &client.Reply{Answer: &wire.Answer{}}

// poll reads a listing and recent changes, and returns the content to publish.
func (r *run) poll(ctx context.Context, now time.Time) registry.Batch {
	begin := time.Now()
	reply, switched, err := r.read(ctx, now)
	now = now.Add(time.Since(begin))
	if ctx.Err() != nil {
		return registry.Batch{Health: r.health, Next: time.Hour}
	}
	if err != nil {
		r.state.suspicion = r.state.suspicion.Leave(now)
		// Random pauses, so that not all replicas return at once.
		pause := float64(r.settings.Interval<<min(r.failures, 2)) * (0.75 + rand.Float64()/2) //nolint:gosec // no secret
		r.failures++
		r.health = sources.Health{State: registry.StateOf(err, client.ErrDenied), Message: err.Error()}
		return registry.Batch{Health: r.health, Next: time.Duration(pause), Note: r.state.NoteOf(r.state.suspicion)}
	}
	r.failures = 0
	r.counts.listings.Add(1)
	changes, err := r.servers.Changes(ctx, r.servers.Servers()[r.server], r.changes.Sum)
	switch {
	case err != nil: // the server does not offer them: the listing counts alone
		changes = noChanges
	case changes.Answer == nil:
		changes = r.changes
	}
	if reply != r.listing || changes.Sum != r.changes.Sum {
		if r.state.takeListing(reply.Apply(changes.Answer), switched, now) {
			r.counts.suspicions.Add(1)
		}
		r.state.takeChanges(changes.Instances)
	}
	r.listing, r.changes = reply, changes
	r.state.Explained = !r.state.unproven()
	batch := registry.Batch{Contents: r.state.Contents(now), Synced: !r.synced}
	r.state.suspicion, r.synced = r.state.suspicion.Settle(now), true
	r.health = r.state.health()
	batch.Health, batch.Note = r.health, r.state.NoteOf(r.state.suspicion)
	batch.Next = min(r.settings.Interval, registry.Wait(registry.Earlier(r.state.Next(), r.state.suspicion.End), now))
	return batch
}

// read reads the listing of the followed server. If that fails, it follows the next server that answers. From time to
// time it returns to the first server that does not list much less.
func (r *run) read(ctx context.Context, now time.Time) (reply *client.Reply, switched bool, err error) {
	servers, first := r.servers.Servers(), r.server
	returning := !now.Before(r.returns)
	if returning {
		first, r.returns = 0, now.Add(r.settings.Resync)
	}
	for offset := range servers {
		candidate := (first + offset) % len(servers)
		reply, failure := r.servers.Listing(ctx, servers[candidate], r.listing.Sum)
		switched = candidate != r.server
		least := len(r.state.listed) - maxLoss(len(r.state.listed))
		switch {
		case failure != nil && err == nil:
			err = fmt.Errorf("no server answers: %w", failure)
		case failure != nil:
			err = fmt.Errorf("%w; %w", err, failure)
		case returning && switched && reply.Answer != nil && len(reply.Instances) < least:
		default:
			if switched {
				r.counts.servers.Add(1)
			}
			r.server = candidate
			if reply.Answer == nil {
				reply = r.listing
			}
			return reply, switched, nil
		}
		r.listing = &client.Reply{} // the next listing counts, whatever it is
	}
	return nil, false, err
}

// shownProblems bounds the instances in the status.
const shownProblems = 3

const suspicionText = "the server was away, is another one or lost many instances"

// health returns the status of a source that can read.
func (s *state) health() sources.Health {
	problems := slices.Clone(s.problems[:min(len(s.problems), shownProblems)])
	if more := len(s.problems) - shownProblems; more > 0 {
		problems = append(problems, fmt.Sprintf("and %d more instances", more))
	}
	services, held := s.Services()
	var end time.Time
	if held > 0 {
		text := registry.HeldText(held, s.HeldServices())
		if !s.Explained {
			end = s.suspicion.End
			text += " until " + end.UTC().Format(time.TimeOnly) + " UTC at the latest: " + suspicionText
		}
		problems = append(problems, text)
	}
	switch {
	case len(problems) > 0:
		return sources.Health{State: sources.Degraded, Message: strings.Join(problems, "; "), Unconfirmed: held, End: end}
	case services == 0 && s.unselected > 0:
		message := "none of " + words.Count(s.unselected, "application", "applications") + " is selected"
		return sources.Health{State: sources.Healthy, Message: message}
	case services == 0:
		return sources.Health{State: sources.Healthy, Message: "there is no instance"}
	}
	return sources.Health{State: sources.Healthy}
}
