package consul

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"tributary/sources"
	"tributary/sources/consul/judge"
)

// What a run knows of the parts of Consul is kept for the next one, so that a restart or a reload believes no more than a run
// that goes on: a Consul that lost its data is found out by what an earlier run saw of it, and what is held stays held.

const (
	// indexAfter is how long an index that alone is newer than what is kept waits for something else to be kept: a
	// Consul in which instances come and go is not to be written to disk all the time.
	indexAfter = 30 * time.Second
	// keptNodes is how many nodes are kept of which it is known when they were created.
	keptNodes = 256
)

// selecting names the settings that decide what is read, and of which Consul.
func (s Settings) selecting() string {
	text, err := json.Marshal([]any{s.address, s.Services, s.Skip, s.Tags, s.Filter, s.HealthFilter})
	if err != nil { // of plain data
		panic(err)
	}
	return string(text)
}

// recall takes over what an earlier run knew.
func (r *run) recall(k sources.Keeper, now time.Time) {
	records, err := judge.Decode(k.Kept(), r.settings.selecting())
	if err != nil {
		return // without it we know as much as the first time
	}
	for _, p := range r.parts {
		record, ok := records.Parts[p.String()]
		if !ok {
			continue
		}
		p.suspicion = record.Suspicion
		p.carried = p.suspected(now)
		if record.Index == 0 {
			continue
		}
		p.based = true
		p.listing = listing{Answer: judge.Answer{Index: record.Index}, names: make(map[string][]string)}
		for _, name := range record.Names {
			p.listing.names[name] = nil
		}
		maps.Copy(p.nodes, record.Made)
	}
}

// records are what is to be kept of all parts. The caller holds mu.
func (r *run) records() judge.Records {
	all := judge.Records{Of: r.settings.selecting(), Parts: make(map[string]judge.Record)}
	for _, p := range r.parts {
		record := judge.Record{Suspicion: p.suspicion}
		if p.known || p.based {
			record.Index, record.Names, record.Made = p.listing.Index, slices.Sorted(maps.Keys(p.listing.names)), make(judge.Made)
			for _, node := range slices.Sorted(maps.Keys(p.nodes))[:min(len(p.nodes), keptNodes)] {
				record.Made[node] = p.nodes[node]
			}
		}
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

// last returns what is to be kept when the run ends.
func (r *run) last() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.records().Encode()
}

// witnesses is how many services are read to find out whether their nodes are still the same.
const witnesses = 3

// witness reads some of the services that are left, if others have gone, to see whether their nodes are those that there were:
// if all were made anew, Consul lost its data, however high its index.
func (r *run) witness(ctx context.Context, p *part, l *listing) error {
	r.mu.Lock()
	c := p.compare(*l)
	believed := l.Confirming && judge.Judge(c, l.Answer) == judge.Believe
	if c.Missing < 2 || !believed || judge.Reset(c, l.Answer) || len(p.nodes) == 0 {
		r.mu.Unlock()
		return nil
	}
	var left []string
	for name := range p.listing.names {
		if _, there := l.names[name]; there {
			left = append(left, name)
		}
	}
	r.mu.Unlock()
	slices.Sort(left)
	l.nodes = make(judge.Made)
	for i := range min(witnesses, len(left)) {
		done, ok := r.gate.read(ctx, r.gate.ramp)
		if !ok {
			return ctx.Err()
		}
		r.counters.confirmations.Add(1)
		answer, err := r.catalog.service(ctx, p.domain, left[i*(len(left)-1)/max(1, witnesses-1)], query{level: certain})
		done()
		if err != nil {
			return err
		}
		maps.Copy(l.nodes, answer.instances.nodes())
	}
	return nil
}
