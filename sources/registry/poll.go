package registry

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tributary/internal/address"
	"tributary/internal/fetch"
	"tributary/internal/words"
	"tributary/internal/worker"
	"tributary/resource"
	"tributary/sources"
)

// Catalog is the result of one read of a registry.
type Catalog[ID ServiceID[ID]] struct {
	Offers    map[string]Offers[ID] // by group
	Unchanged bool                  // the content did not change, and Offers is empty
	Doubtful  bool                  // unlisted endpoints may still exist: a suspicion begins
	Problems  []string              // instances that cannot be read or called
	Empty     string                // the status of a registry without services; by default there is no instance
}

// Offer adds an offer to its group, with warnings.
func (c *Catalog[ID]) Offer(offer Offer[ID], warnings ...string) {
	c.change(offer.ID.Group(), func(group *Offers[ID]) {
		group.All = append(group.All, offer)
		group.Warnings = append(group.Warnings, warnings...)
	})
}

// LeaveOut adds an instance without an endpoint to a group.
func (c *Catalog[ID]) LeaveOut(name string, instance sources.LeftOut) {
	c.change(name, func(group *Offers[ID]) { group.LeftOut = append(group.LeftOut, instance) })
}

func (c *Catalog[ID]) change(name string, edit func(*Offers[ID])) {
	if c.Offers == nil {
		c.Offers = map[string]Offers[ID]{}
	}
	group := c.Offers[name]
	edit(&group)
	c.Offers[name] = group
}

// PollSettings are the settings that all polled sources have. Zero values stand for the defaults.
type PollSettings struct {
	// Interval is the time between two polls. Default: 5s.
	Interval time.Duration
	// Resync is the time after which the source returns to the first servers of the address. Default: 10m.
	Resync time.Duration
	// Hold is how long unlisted instances stay without proof that they have gone. The default, 6m, fits clients that
	// register again within five minutes, and answers that are up to half a minute old.
	Hold time.Duration
	// KeepEmpty is how long a service without instances stays, without endpoints. Default: 24h.
	KeepEmpty time.Duration
	fetch.Settings
	// VIPs gives services virtual addresses; nil for none.
	VIPs VIPs
	// Registerer takes the metrics of the source, with its label. Default: none.
	Registerer prometheus.Registerer
}

// Client checks the settings, fills in the defaults, and returns a client of servers. An error begins with the key at
// fault.
func (s *PollSettings) Client(servers address.Address) (*fetch.Client, error) {
	if err := cmp.Or(
		Time("interval", &s.Interval, 5*time.Second, time.Millisecond, time.Minute),
		Time("hold", &s.Hold, 6*time.Minute, time.Millisecond, 24*time.Hour),
		Time("keepEmpty", &s.KeepEmpty, 24*time.Hour, time.Millisecond, 365*24*time.Hour),
		Time("resync", &s.Resync, 10*time.Minute, 10*time.Millisecond, 24*time.Hour),
	); err != nil {
		return nil, err
	}
	return fetch.New(servers, s.Settings)
}

// PollOptions are the parts of a source that is polled. Servers, Read, Mapping and Counts are required.
type PollOptions[ID ServiceID[ID]] struct {
	PollSettings

	Servers []string // preferred ones first
	// Read reads the whole registry from one server, or from the next one if that fails. If the source returns to a
	// preferred server, an error keeps it at the present one.
	Read    func(ctx context.Context, server string, returning bool) (Catalog[ID], error)
	Mapping Mapping[ID]

	// Selects reports whether a service of an earlier run is still to be read. Nil: all are.
	Selects func(Service[ID]) bool
	// HoldEnd returns when the hold of an unlisted endpoint ends. Nil: with the suspicion.
	HoldEnd func(ID, Known) time.Time
	// InDoubt reports whether the registry does not prove the end of an endpoint that is served. Nil: it never does.
	InDoubt func(Known) bool

	Counts *PollCounts
}

// PollCounts are the counters of a source that is polled. They continue from one run to the next.
type PollCounts struct {
	*sources.CounterSet
	Reads, Suspicions, Switches sources.Counter
}

// NewPollCounts returns counters with a prefix of their names.
func NewPollCounts(prefix string) *PollCounts {
	counts := &PollCounts{
		Reads: sources.Counter{Name: "full_reads_total", Help: "Listings of all instances that were read."},
		Suspicions: sources.Counter{
			Name: "suspicions_total",
			Help: "Times that unlisted instances began to stay: after errors, at another server, or if many are missing.",
		},
		Switches: sources.Counter{Name: "servers_total", Help: "Changes to another server."},
	}
	counts.CounterSet = sources.NewCounters(prefix, &counts.Reads, &counts.Suspicions, &counts.Switches)
	return counts
}

// Poller is one run of a source that is polled. The first catalog, and the first one after an error, begin a suspicion
// of the instances that were listed before, which may not have registered again yet. Only Run and Poll do I/O. Its loop
// owns it.
type Poller[ID ServiceID[ID]] struct {
	*Machine[ID]
	PollOptions[ID]

	Follower fetch.Follower
	problems []string // of the last catalog
	empty    string
	failures int // polls in a row that failed
	synced   bool
	health   sources.Health // the last reported health
}

// NewPoller returns a poller without content. Call Begin first, unless Run is used.
func NewPoller[ID ServiceID[ID]](options PollOptions[ID]) *Poller[ID] {
	poller := &Poller[ID]{PollOptions: options}
	poller.Follower = fetch.Follower{Servers: options.Servers, Resync: options.Resync}
	keepEmpty := func(ID) time.Duration { return options.KeepEmpty }
	poller.Machine = NewMachine(options.Mapping, keepEmpty, options.HoldEnd)
	return poller
}

// Begin takes back the content and the note of an earlier run.
func (p *Poller[ID]) Begin(sink sources.Sink, now time.Time) {
	Restore(sink, func(group string, published []*resource.Resource) { p.Restore(group, published, p.Selects) })
	p.Resume(sink, now)
}

// Run polls the registry and publishes its services until ctx ends. A panic is a failure of the source.
func (p *Poller[ID]) Run(ctx context.Context, sink sources.Sink) error {
	unregister, err := p.Counts.Register(p.Registerer)
	if err != nil {
		return fmt.Errorf("register the metrics: %w", err)
	}
	defer unregister()
	p.Begin(sink, time.Now())
	return worker.Do(func() error {
		Publish(ctx, sink, nil, 0, func(now time.Time) Batch { return p.Poll(ctx, now) })
		return ctx.Err()
	})
}

// Poll reads the registry, and returns the content to publish.
func (p *Poller[ID]) Poll(ctx context.Context, now time.Time) Batch {
	begin := time.Now()
	var catalog Catalog[ID]
	switched, err := p.Follower.Read(now, func(server string, returning bool) (err error) {
		catalog, err = p.Read(ctx, server, returning)
		return err
	})
	now = now.Add(time.Since(begin))
	switch {
	case ctx.Err() != nil:
		return Batch{Health: p.health, Next: time.Hour, Unconfirmed: p.Unconfirmed()}
	case err != nil:
		return p.fail(err, now)
	}
	if switched {
		p.Counts.Switches.Add(1)
		catalog.Doubtful = catalog.Doubtful || !catalog.Unchanged
	}
	return p.Apply(catalog, now)
}

// maxPause bounds the mean pause after failures, unless the interval is longer.
const maxPause = 10 * time.Second

// fail returns the batch after a read that failed: everything stays. Pauses are random, so that not all replicas return
// at once.
func (p *Poller[ID]) fail(err error, now time.Time) Batch {
	p.Leave(now)
	pause := float64(min(p.Interval<<min(p.failures, 2), max(p.Interval, maxPause)))
	pause *= 0.75 + rand.Float64()/2 //nolint:gosec // no secret
	p.failures++
	p.health = sources.Health{State: StateOf(err, fetch.ErrDenied), Message: err.Error()}
	return Batch{
		Health: p.health, Next: time.Duration(pause), Note: p.Note(), Unconfirmed: p.Unconfirmed(),
	}
}

// Apply takes a catalog, and returns the content to publish.
func (p *Poller[ID]) Apply(catalog Catalog[ID], now time.Time) Batch {
	p.failures = 0
	p.Counts.Reads.Add(1)
	if catalog.Doubtful || !p.Suspicion.Away.IsZero() {
		p.Return(now, p.Hold)
		p.Counts.Suspicions.Add(1)
	}
	if !catalog.Unchanged {
		p.TakeAll(catalog.Offers)
		p.Reconsider()
		p.problems, p.empty = catalog.Problems, cmp.Or(catalog.Empty, "there is no instance")
	}
	p.RemovalsObserved = p.observesRemovals()
	batch := Batch{Contents: p.Contents(now), Synced: !p.synced}
	p.synced, p.health = true, p.healthNow()
	batch.Health, batch.Note, batch.Unconfirmed = p.health, p.Note(), p.Unconfirmed()
	batch.Next = min(p.Interval, Wait(p.Next(), now))
	return batch
}

// observesRemovals reports whether the registry itself proves that unlisted endpoints have gone.
func (p *Poller[ID]) observesRemovals() bool {
	if certain := p.Suspicion.End.IsZero(); certain || p.InDoubt == nil {
		return certain
	}
	doubtful := false
	p.Endpoints(func(_ ID, endpoint Known) { doubtful = doubtful || p.InDoubt(endpoint) })
	return !doubtful
}

// shownProblems bounds the instances in the status.
const shownProblems = 3

const suspicionText = "the server was away, is another one or lost many instances"

// healthNow returns the status of a source that can read.
func (p *Poller[ID]) healthNow() sources.Health {
	problems := slices.Clone(p.problems[:min(len(p.problems), shownProblems)])
	if unlisted := len(p.problems) - shownProblems; unlisted > 0 {
		problems = append(problems, "and "+words.Count(unlisted, "more instance", "more instances"))
	}
	services, held := p.Services()
	var end time.Time
	if held > 0 {
		text := HeldText(held, p.HeldServices())
		if !p.RemovalsObserved && !p.Suspicion.End.IsZero() {
			end = p.Suspicion.End
			text += " until " + end.UTC().Format(time.TimeOnly) + " UTC at the latest: " + suspicionText
		}
		problems = append(problems, text)
	}
	switch {
	case len(problems) > 0:
		return sources.Health{State: sources.Degraded, Message: strings.Join(problems, "; "), Unconfirmed: held, End: end}
	case services == 0:
		return sources.Health{State: sources.Healthy, Message: p.empty}
	}
	return sources.Health{State: sources.Healthy}
}
