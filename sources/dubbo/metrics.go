package dubbo

import "tributary/sources"

// counts are the counters of a source. They continue from one run to the next.
type counts struct {
	*sources.CounterSet
	reads, healed, sessions, resolved, unresolved sources.Counter
}

func newCounts() *counts {
	c := &counts{
		reads:      sources.Counter{Name: "reads_total", Help: "State changes taken in: reads, connection changes, lookups."},
		healed:     sources.Counter{Name: "healed_total", Help: "Nodes found changed by the resync compare without a watch event."},
		sessions:   sources.Counter{Name: "sessions_lost_total", Help: "Sessions lost; everything was read again."},
		resolved:   sources.Counter{Name: "resolved_total", Help: "Revisions whose services were found out."},
		unresolved: sources.Counter{Name: "unresolved_total", Help: "Failed attempts to find out what a revision of an application serves."},
	}
	c.CounterSet = sources.NewCounters("tributary_dubbo_", &c.reads, &c.healed, &c.sessions, &c.resolved, &c.unresolved)
	return c
}
