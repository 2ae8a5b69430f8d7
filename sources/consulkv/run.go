package consulkv

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tributary/internal/words"
	"tributary/sources"
	"tributary/sources/consul/dial"
	"tributary/sources/consul/judge"
)

// Source is a sources.Source of a prefix. Its runs share connections and the state of servers.
type Source struct {
	place      *place
	registerer prometheus.Registerer
	vitals     *dial.Vitals
}

var _ sources.Source = (*Source)(nil)

// New returns a source of the prefix at address, "consul-kv://host:port/prefix". An error begins with the key or
// variable at fault.
func New(address string, settings Settings) (*Source, error) {
	place, err := newPlace(address, settings)
	if err != nil {
		return nil, err
	}
	return &Source{place: place, registerer: settings.Registerer, vitals: new(dial.Vitals)}, nil
}

// Run publishes the keys under the prefix until ctx ends. It reports a Consul that cannot be read, and tries again.
func (s *Source) Run(ctx context.Context, sink sources.Sink) error {
	defer s.place.client.Close()
	if s.registerer != nil {
		if err := s.registerer.Register(s.vitals); err != nil {
			return fmt.Errorf("register the metrics: %w", err)
		}
		defer s.registerer.Unregister(s.vitals)
	}
	run := &run{
		Source: s, sink: sink, sums: make(map[string]uint64), seed: maphash.MakeSeed(),
		memory: newMemory(s.place.resetHold),
	}
	for _, group := range sink.Groups() {
		run.sums[group] = 0
	}
	run.recall()
	return run.follow(ctx)
}

// applyPulse notes whether Consul has a leader.
func (r *run) applyPulse(pulse dial.Pulse) {
	r.vitals.Set(r.place.prefix, pulse)
	r.mu.Lock()
	wasLeaderless := r.isLeaderless()
	r.leaderlessPulses++
	if pulse.KnownLeader {
		r.leaderlessPulses = 0
	}
	r.contact = pulse.LastContact
	health := r.health
	changed := wasLeaderless != r.isLeaderless()
	r.mu.Unlock()
	if changed && health.State != sources.Starting {
		r.report(health)
	}
}

// isLeaderless reports whether Consul has no leader. An election is no outage: only two pulses in a row without a
// leader count. mu is held.
func (r *run) isLeaderless() bool { return r.leaderlessPulses > 1 }

// report reports the health after a read, or that Consul has no leader.
func (r *run) report(health sources.Health) {
	r.mu.Lock()
	r.health = health
	leaderless, contact := r.isLeaderless(), r.contact
	r.mu.Unlock()
	if leaderless && health.State != sources.Denied && health.State != sources.Unreachable {
		health = sources.Health{
			State: sources.Unreachable,
			Message: fmt.Sprintf("%s: Consul has no leader: what it answers is as old as that, %s "+
				"or more", r.place.name, contact),
		}
	}
	r.sink.Report(health)
}

// recall restores the state of an earlier run.
func (r *run) recall() {
	var record judge.Record
	if keeper, ok := r.sink.(sources.Keeper); ok {
		records, err := judge.Decode(keeper.LastNote(), r.place.origin(r.place.prefix), time.Now(), r.place.resetHold)
		if err == nil { // without a record, the run begins like the first one
			record = records.Scopes[r.place.prefix]
		}
	}
	r.memory.recall(r.sink.Groups(), record)
}

// saveRecord stores the record for the next run.
func (r *run) saveRecord() {
	if keeper, ok := r.sink.(sources.Keeper); ok {
		keeper.Keep(judge.Records{
			Settings: r.place.origin(r.place.prefix),
			Scopes:   map[string]judge.Record{r.place.prefix: r.memory.record()},
		}.Encode())
	}
}

// run is the state of one run.
type run struct {
	*Source
	sink     sources.Sink
	sums     map[string]uint64 // digests of published values by key; 0 for those of an earlier run
	seed     maphash.Seed
	synced   bool
	memory   *memory
	blocking blockingQuery

	mu               sync.Mutex
	health           sources.Health // after the last read
	leaderlessPulses int            // pulses in a row without a leader
	contact          time.Duration  // time between the last pulse and the last contact with a leader
}

// publish publishes the changes in one commit.
func (r *run) publish(listing listing) {
	r.saveRecord() // before the changes that it explains
	var contents []sources.Content
	for _, pair := range listing.pairs {
		sum := maphash.Bytes(r.seed, pair.Value) | 1 // so that it is not zero
		if r.sums[pair.Key] == sum {
			continue
		}
		r.sums[pair.Key] = sum
		contents = append(contents, r.place.parse(pair.Key, pair.Value))
	}
	for key := range r.sums {
		if _, stays := r.memory.keys[key]; !stays {
			contents = append(contents, sources.Content{Group: key})
			delete(r.sums, key)
		}
	}
	if len(contents) > 0 {
		_ = r.sink.ReplaceAll(contents) // the sink quarantines and reports refused objects
	}
	if !r.synced {
		r.synced = true
		r.sink.Synced()
	}
	health := r.place.healthOf(r.memory)
	unconfirmed := make(map[string]string)
	for _, key := range r.memory.keys.Held() {
		unconfirmed[key] = health.Message
	}
	sources.ReportUnconfirmed(r.sink, unconfirmed)
	r.report(health)
}

// healthOf returns the health of a source after a listing.
func (p *place) healthOf(memory *memory) sources.Health {
	held := len(memory.keys.Held())
	if held == 0 {
		return sources.Health{State: sources.Healthy}
	}
	deadline := "something is written there, and then for " + p.resetHold.String()
	end := memory.suspicion.Next()
	if !end.IsZero() {
		deadline = end.UTC().Format(time.TimeOnly) + " UTC"
	}
	return sources.Health{
		State: sources.Degraded, Unconfirmed: held, End: end,
		Message: fmt.Sprintf("%s: read %s: %s; %s until %s", p.name, p.prefix, memory.suspicion.Why,
			words.Count(held, "key that is missing stays", "keys that are missing stay"), deadline),
	}
}

// parse decodes the value of a key as the content of its group.
func (p *place) parse(key string, value []byte) sources.Content {
	return sources.Decode(key, p.origin(key), value, p.decode)
}

// origin returns the name of a key for people, without a line.
func (p *place) origin(key string) string { return p.name + " key " + key }
