package nacos

import "tributary/sources"

// counts are the counters of the source, over all of its runs.
type counts struct {
	*sources.CounterSet
	reads, healed, connections sources.Counter
}

func newCounts() *counts {
	counts := &counts{
		reads: sources.Counter{
			Name: "reads_total",
			Help: "Services that were read, at the start and whenever they changed.",
		},
		healed: sources.Counter{
			Name: "healed_total",
			Help: "Services that differed in the slow read from the last push.",
		},
		connections: sources.Counter{
			Name: "connections_total",
			Help: "Connections that were made. After each one, everything is read again.",
		},
	}
	counts.CounterSet = sources.NewCounters("tributary_nacos_", &counts.reads, &counts.healed, &counts.connections)
	return counts
}
