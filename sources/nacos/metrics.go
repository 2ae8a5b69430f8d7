package nacos

import "tributary/internal/counters"

// counts count what the source does. They go on from one run to the next.
type counts struct {
	*counters.Set
	reads, healed, connections counters.Counter
}

func newCounts() *counts {
	c := &counts{
		reads:  counters.Counter{Name: "reads_total", Help: "Services that were read, at the start and whenever they changed."},
		healed: counters.Counter{Name: "healed_total", Help: "Services that the slow read found to be different from what Nacos had pushed."},
		connections: counters.Counter{
			Name: "connections_total",
			Help: "Connections that were made, after each of which everything is read anew.",
		},
	}
	c.Set = counters.New("tributary_nacos_", &c.reads, &c.healed, &c.connections)
	return c
}
