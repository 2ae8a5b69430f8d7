package eureka

import "tributary/sources"

// counts are the counters of a source. They continue from one run to the next.
type counts struct {
	*sources.CounterSet
	full, changes, mismatches, memories, servers, singles sources.Counter
}

func newCounts() *counts {
	c := &counts{
		full:    sources.Counter{Name: "full_reads_total", Help: "Times that everything was read."},
		changes: sources.Counter{Name: "changes_reads_total", Help: "Times that changes were read."},
		mismatches: sources.Counter{
			Name: "mismatches_total",
			Help: "Times that the hash code of changes showed that some were missed.",
		},
		memories: sources.Counter{
			Name: "memories_total",
			Help: "Times that a server was another one, or restarted: its unlisted instances need not have gone.",
		},
		servers: sources.Counter{Name: "servers_total", Help: "Times that another server was followed."},
		singles: sources.Counter{
			Name: "singles_total",
			Help: "Times that servers were asked about single instances, since listings can be old.",
		},
	}
	c.CounterSet = sources.NewCounters("tributary_eureka_",
		&c.full, &c.changes, &c.mismatches, &c.memories, &c.servers, &c.singles)
	return c
}
