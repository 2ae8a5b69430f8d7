package eureka

import "tributary/sources"

// counts are the counters of a source. They continue from one run to the next.
type counts struct {
	*sources.CounterSet
	listings, changes, servers, suspicions sources.Counter
}

func newCounts() *counts {
	counters := &counts{
		listings: sources.Counter{Name: "full_reads_total", Help: "Listings of all instances that were read."},
		changes: sources.Counter{
			Name: "changes_reads_total",
			Help: "Reads of recent changes, for proof that unlisted instances have gone.",
		},
		servers: sources.Counter{Name: "servers_total", Help: "Changes to another server."},
		suspicions: sources.Counter{
			Name: "suspicions_total",
			Help: "Times that unlisted instances began to stay for hold: after errors, at another server, or when many were missing.",
		},
	}
	counters.CounterSet = sources.NewCounters("tributary_eureka_",
		&counters.listings, &counters.changes, &counters.servers, &counters.suspicions)
	return counters
}
