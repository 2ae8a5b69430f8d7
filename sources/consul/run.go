package consul

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"tributary/internal/worker"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/consul/dial"
	"tributary/sources/consul/judge"
	"tributary/sources/consul/mapping"
	"tributary/sources/registry"
)

// run is the state of one run.
type run struct {
	// read-only
	settings  Settings
	out       outlet
	keeper    sources.Keeper                              // nil if there is none
	lost      func(name string, in []mapping.Service) int // nil if what an earlier run had made of a service is in before
	inherit   func(judge.Records)                         // nil if restored is known without what was kept
	catalog   catalog
	gate      *gate
	bounds    bounds
	metrics   *metrics
	parts     []*part
	witnesses bool            // some places are for queries that notice what changes
	restored  map[string]bool // what an earlier run published
	wakeup    registry.Wakeup // there is something to publish or report

	workers *worker.Group // the loops of places and services

	mu        sync.Mutex
	dirty     map[string]bool // services to publish
	renamed   bool            // the set of all names is another one
	recounted bool            // so is that of the names that are not wanted, or their number
	synced    bool
	before    map[string][]*resource.Resource // what an earlier run published, while it is not settled what is left of it
	unkept    bool                            // there is something to keep for the next run
	keptAt    time.Time                       // when that was last done
}

// Run publishes what Consul has until ctx ends.
func (s *Source) Run(ctx context.Context, sink sources.Sink) error {
	return s.run(ctx, func() *run {
		return newRun(s.settings, sink, s.catalog, s.mapper, s.settings.MaxConcurrentWatches, s.metrics)
	})
}

// Follow tells a follower what Consul has, until ctx ends. Errors are as those of Run.
func (s *Source) Follow(ctx context.Context, f Follower) error {
	return s.run(ctx, func() *run {
		r := newReader(s.settings, s.catalog, s.settings.MaxConcurrentWatches, s.metrics)
		r.tell(f)
		return r
	})
}

func (s *Source) run(ctx context.Context, made func() *run) error {
	defer s.client.Close()
	stop, err := s.metrics.register(s.settings.Registerer)
	if err != nil {
		return fmt.Errorf("register the metrics: %w", err)
	}
	defer stop()
	return made().loop(ctx)
}

// newRun returns a run that publishes what a mapper makes of services.
func newRun(settings Settings, sink sources.Sink, c catalog, m Mapper, places int, counted *metrics) *run {
	r := newReader(settings, c, places, counted)
	r.out = published{sink, m}
	r.keeper, _ = sink.(sources.Keeper)
	recaller, _ := sink.(sources.Recaller)
	for _, group := range sink.Groups() {
		r.restored[group] = true
		if recaller != nil {
			r.before[group] = recaller.Published(group)
			if recaller.Exact(group) { // else other settings may have made another port of it
				m.Restore(r.before[group])
			}
		}
	}
	return r
}

// newReader returns a run that lacks an outlet.
func newReader(settings Settings, c catalog, places int, counted *metrics) *run {
	r := &run{
		settings: settings, catalog: c, metrics: counted, bounds: bounds{maxServices, maxInstances},
		restored: make(map[string]bool), wakeup: registry.NewWakeup(), dirty: make(map[string]bool),
		before: make(map[string][]*resource.Resource),
	}
	for _, d := range settings.domains() {
		r.parts = append(r.parts, &part{
			domain: d, resetHold: settings.ResetHold, services: make(map[string]*service), nodes: newNodes(), note: newNote(),
		})
	}
	if places > 0 {
		places = max(1, places-len(r.parts)) // the names have theirs
	}
	r.gate = newGate(settings, places)
	if r.witnesses = places > 0 && places >= enoughFor*len(r.parts); r.witnesses {
		r.gate.places -= len(witnessed) * len(r.parts)
	}
	return r
}

func (r *run) loop(ctx context.Context) error {
	var kept judge.Records
	if r.keeper != nil {
		kept = r.recall(r.keeper, time.Now())
	}
	if r.inherit != nil {
		r.inherit(kept)
	}
	workers, ctx := worker.New(ctx)
	defer workers.Stop()
	r.workers = workers
	for _, p := range r.parts {
		workers.Go(func() { r.list(ctx, p) })
		workers.Go(func() { r.compare(ctx, p) })
		workers.Go(func() { r.feel(ctx, p) })
		if r.witnesses && p.peer == "" { // of what peers export there are no witnesses
			for _, question := range witnessed {
				workers.Go(func() { r.notice(ctx, p, question) })
			}
		}
	}
	r.publish(ctx)
	return cmp.Or(workers.Wait(), ctx.Err())
}

// named returns the services of a name in all parts. The caller holds mu.
func (r *run) named(name string) iter.Seq[*service] {
	return func(yield func(*service) bool) {
		for _, p := range r.parts {
			if s := p.services[name]; s != nil && !yield(s) {
				return
			}
		}
	}
}

// explain says what an error of a read means; nil if we ended the read ourselves.
func (r *run) explain(err error) *trouble {
	f := dial.Classify(err)
	switch f.Kind {
	case dial.Canceled:
		return nil
	case dial.RateLimited:
		r.metrics.limited.Add(1)
		r.gate.refrain(max(f.RetryAfter, time.Second))
	case dial.Denied:
		r.metrics.denied.Add(1)
	}
	return &trouble{f.State(), err.Error(), ownFault(f)}
}

// ownFault reports whether what was asked is at fault, or what was answered, and not that Consul cannot be reached.
func ownFault(f dial.Failure) bool { return f.Kind == dial.Refused || f.Kind == dial.Garbled }

// pause waits for d, or until somebody wants us to look again.
func (r *run) pause(ctx context.Context, i *interrupt, d time.Duration) {
	if d <= 0 {
		return
	}
	ctx, end := i.begin(ctx)
	defer end()
	sleep(ctx, d)
}

// What a run knows of the parts of Consul is kept for the next one, so that a restart or a reload believes no more than a run
// that goes on: a Consul that lost its data is found out by what an earlier run saw of it, and what is held stays held.

// indexAfter is how long an index that alone is newer than what is kept waits for something else to be kept: a Consul in which
// instances come and go is not to be written to disk all the time.
const indexAfter = 30 * time.Second

// selecting names the settings that decide what is read, and of which Consul.
func (s Settings) selecting() string {
	what := []any{s.address, s.Services, s.Skip, s.Tags, s.Filter, s.HealthFilter}
	if s.Selection != "" {
		what = append(what, s.Selection)
	}
	text, err := json.Marshal(what)
	if err != nil { // of plain data
		panic(err)
	}
	return string(text)
}

// recall takes over what an earlier run knew, and returns it.
func (r *run) recall(k sources.Keeper, now time.Time) judge.Records {
	records, err := judge.Decode(k.Kept(), r.settings.selecting(), now, r.settings.ResetHold)
	if err != nil {
		return judge.Records{} // without it we know as much as the first time
	}
	for _, p := range r.parts {
		record, ok := records.Parts[p.String()]
		if !ok {
			continue
		}
		p.suspicion, p.held = record.Suspicion, record.Held
		if record.Index == 0 {
			continue
		}
		p.based = true
		p.cluster = record.Cluster
		p.listing = listing{Answer: judge.Answer{Index: record.Index}, names: make(map[string][]string)}
		for _, name := range record.Names {
			p.listing.names[name] = nil
		}
		maps.Copy(p.nodes.believed, record.Made)
	}
	return records
}

// records are what is to be kept of all parts. The caller holds mu.
func (r *run) records(now time.Time) judge.Records {
	all := judge.Records{Of: r.settings.selecting(), Parts: make(map[string]judge.Record)}
	for _, p := range r.parts {
		record := judge.Record{Suspicion: p.suspicionAt(now)}
		if p.known || p.based {
			record.Index, record.Cluster, record.Made = p.listing.Index, p.cluster, p.nodes.believed
			record.Names = slices.Sorted(maps.Keys(p.listing.names))
		}
		if !p.known {
			record.Held = p.held
		}
		for name, s := range p.services {
			if _, listed := p.listing.names[name]; !listed && (s.restored || len(s.instances.list) > 0) {
				record.Held = append(record.Held, name)
			}
		}
		slices.Sort(record.Held)
		all.Parts[p.String()] = record
	}
	return all
}
