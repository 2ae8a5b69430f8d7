package consul

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"tributary/sources/consul/judge"
)

// The record of a run lets the next one judge its first answers as a running source would: it detects a Consul that
// lost its data in between, and continues holds.

// indexRecordInterval is how long a change of indexes alone waits to be recorded, so that a busy Consul does not cause
// constant writes.
const indexRecordInterval = 30 * time.Second

// identity names the settings that select services, and the Consul.
func (s Settings) identity() string {
	fields := []any{s.address, s.Services, s.Skip, s.Tags, s.Filter, s.HealthFilter}
	if s.Selection != "" {
		fields = append(fields, s.Selection)
	}
	text, err := json.Marshal(fields)
	if err != nil { // of plain data
		panic(err)
	}
	return string(text)
}

// restore applies the record of an earlier run. It returns the services in the record, and whether the record covers
// all scopes.
func (st *state) restore(record []byte, now time.Time) (names []string, complete bool) {
	records, err := judge.Decode(record, st.settings.identity(), now, st.settings.ResetHold)
	if err != nil {
		return nil, false // as at a first start
	}
	complete = true
	for _, scope := range st.scopes {
		saved := records.Scopes[scope.String()]
		scope.suspicion = saved.Suspicion
		scope.heldNames = saved.Held
		names = append(names, saved.Held...)
		if saved.Index == 0 {
			complete = false
			continue
		}
		scope.clusterID = saved.Cluster
		scope.listing = listing{Answer: judge.Answer{Index: saved.Index}, names: make(map[string][]string)}
		for _, name := range saved.Names {
			scope.listing.names[name] = nil
			names = append(names, name)
		}
		scope.recorded = make(map[string]bool, len(saved.Names)+len(saved.Held))
		for _, name := range slices.Concat(saved.Names, saved.Held) {
			scope.recorded[name] = true
		}
		maps.Copy(scope.nodes.accepted, saved.CreateIndexes)
	}
	return names, complete
}

// record returns the record for the next run.
func (st *state) record() []byte {
	records := judge.Records{Settings: st.settings.identity(), Scopes: make(map[string]judge.Record)}
	for _, scope := range st.scopes {
		record := judge.Record{Suspicion: scope.suspicion}
		if scope.namesRead || scope.recorded != nil {
			record.Index = scope.listing.Index
			record.Cluster = scope.clusterID
			record.CreateIndexes = scope.nodes.accepted
			record.Names = slices.Sorted(maps.Keys(scope.listing.names))
		}
		if !scope.namesRead {
			record.Held = slices.Clone(scope.heldNames)
		}
		for name, service := range scope.services {
			_, listed := scope.listing.names[name]
			if !listed && (service.restored || len(service.instances.list) > 0) {
				record.Held = append(record.Held, name)
			}
		}
		slices.Sort(record.Held)
		records.Scopes[scope.String()] = record
	}
	return records.Encode()
}
