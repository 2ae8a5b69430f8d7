package eureka

import "tributary/internal/counters"

// counts are the counters of a source. They continue from one run to the next.
type counts struct {
	*counters.Set
	full, changes, mismatches, memories, servers, singles counters.Counter
}

func newCounts() *counts {
	c := &counts{
		full:       counters.Counter{Name: "full_reads_total", Help: "Times that everything was read."},
		changes:    counters.Counter{Name: "changes_reads_total", Help: "Times that changes were read."},
		mismatches: counters.Counter{Name: "mismatches_total", Help: "Times that the hash code of changes showed that some were missed."},
		memories: counters.Counter{
			Name: "memories_total",
			Help: "Times that a server was another one, or restarted: its unlisted instances need not have gone.",
		},
		servers: counters.Counter{Name: "servers_total", Help: "Times that another server was followed."},
		singles: counters.Counter{
			Name: "singles_total",
			Help: "Times that servers were asked about single instances, since listings can be old.",
		},
	}
	c.Set = counters.New("tributary_eureka_", &c.full, &c.changes, &c.mismatches, &c.memories, &c.servers, &c.singles)
	return c
}
