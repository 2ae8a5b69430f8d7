package consul

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"tributary/sources"
	"tributary/sources/consul/judge"
)

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
		p.nodes.recall(record.Made)
	}
	return records
}

// records are what is to be kept of all parts. The caller holds mu.
func (r *run) records() judge.Records {
	all := judge.Records{Of: r.settings.selecting(), Parts: make(map[string]judge.Record)}
	for _, p := range r.parts {
		record := judge.Record{Suspicion: p.suspicion}
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

// toKeep returns what is to be kept for the next run, or nil if that can wait. The caller holds mu.
func (r *run) toKeep(now time.Time) []byte {
	if !r.unkept && now.Sub(r.keptAt) < indexAfter {
		return nil
	}
	r.unkept, r.keptAt = false, now
	return r.records().Encode()
}
